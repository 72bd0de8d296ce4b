"""What we know of DCGM, NVIDIA's data center GPU manager: its fields, their units, its library.

`fields` is the table of fields and what they mean, whoever tells their values: the library or the
page of a running dcgm-exporter. `driver` is the only door to the library, `integrals` adds up
rates over DCGM's own time. Which fields are read when is left to `sources.dcgm`, reading the page
to `sources.dcgm_page`.
"""
