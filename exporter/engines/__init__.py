"""What inference engines call things, and how their pages become our metrics.

Each engine is one YAML file beside this module: the prefixes that give its page away, and for
each canonical metric (a row `llm_*` of the catalogue) the engine's own names, newest first.
`load_engines` checks the files, `detect` tells which engine a page comes from, `Translator` turns a
page that `formats.exposition` read into samples.

A file holds `engine` (its name), `prefixes` (of sample names, preferred first; "" for none) and
`rows`, and where needed:

- `marks` (beginnings of names) or `mark_labels`: what tells the page from others if there is no
  prefix. `bare`: names outside the prefixes that are read as well.
- `layer`: `engine`, `front` (what stands around engines) or `application`; of several on one page
  the first counts. `foreign_labels`: a series with one of these repeats another server's numbers.
- `model_labels`, `version_labels`: where the model and its version stand, the first that a series
  has. `fold_case`: names that differ in case are one model.
- `rank_labels`: parts that are added up. `copy_labels`: ranks that repeat one another, of which one
  counts. `where: {label: value or list}`: the series that count at all.
- `experimental`: no complete page of the engine was recorded. `destructive`: reading changes what
  others read. `hint`: said when the page has nothing of it.

A row holds `metric`, `required: true` or `required_with: NAME` (required where the page has NAME,
for metrics that came later than the oldest version), and `sources`: alternatives, of which the
first that the page can serve is used. A source holds:

- `name`, or `sum` with several names that must all be there. Names are without the prefix; those
  ending in `_total` are found without it too, and the reverse.
- `quality` (exact, derived, mean_only, bounded, biased) and `semantics`: what is measured.
- `labels`: the metric's own labels, each a constant or `{from: their label}`, with
  `as: status` (only HTTP status codes and their classes), `as: status_class` (404 becomes 4xx,
  unless `words` have 404 itself) or `as: member` (`ResponseType.CANCEL` becomes `cancel`), then
  `words` (theirs: ours) and `other` (for all that are not in `words`).
- `where`: `{label: value or list of values}`, the series that count; "" is a label that is empty or
  not there. `only_with: NAME`, `unless: NAME`: used only where the page has, or lacks, NAME.
- `scale`: a factor to our unit. `combine`: how several series become one, `sum` (default), `mean`
  or `max`; `weight: {name, label, by}`: the mean is weighted with a number that stands in a label
  of another family, found by a label that both have.
- `less`, `times`, `over` (gauges): `{name, where}` of another number to take away, multiply with or
  divide by. `numbers` (gauges): labels whose product is the value.
- `zero_is_off`: 0 means that it is switched off.
- `zeros: {name, le}` (histograms): so many observations in that bucket of the histogram `name` are
  zeros that stand for "nothing to measure"; they are taken out.
"""

from __future__ import annotations

from exporter.engines.engine import Engine, detect
from exporter.engines.loading import EngineError, load_engines
from exporter.engines.translate import MAX_MODELS, Translator

__all__ = ["MAX_MODELS", "Engine", "EngineError", "Translator", "detect", "load_engines"]
