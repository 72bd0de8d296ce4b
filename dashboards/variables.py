"""Variables that boards have at their head."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.models import dashboard as models

from dashboards.queries import SOURCE, expand


def datasource() -> boards.DatasourceVariable:
    """Return the choice of the Prometheus that is asked."""
    return boards.DatasourceVariable("datasource").label("data source").type("prometheus")


def choice(
    name: str,
    series: str,
    *,
    label: str = "",
    every: bool = True,
    description: str = "",
) -> boards.QueryVariable:
    """Return the choice among the values of a label; `every`: several or all of them at once.

    `name` is the label and the variable; `series` tells where its values are looked for.
    """
    variable = (
        boards.QueryVariable(name)
        .label(label or name.replace("_name", ""))
        .datasource(SOURCE)
        .query(f"label_values({expand(series)}, {name})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(every)
        .include_all(every)
    )
    if description:
        variable.description(description)
    if every:
        variable.all_value(".*")
        variable.current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    return variable


def cluster() -> boards.QueryVariable:
    """Return the choice of clusters; without such a label there is only All, which fits."""
    return choice(
        "cluster",
        "flopwatch_build_info",
        description="A label that Prometheus adds to its targets; All fits where there is none.",
    )


def node(*, every: bool = True) -> boards.QueryVariable:
    """Return the choice of nodes, which are Prometheus' label `instance`."""
    return choice("instance", "flopwatch_build_info{<cluster>}", label="node", every=every)


def run(*, every: bool = True) -> boards.QueryVariable:
    """Return the choice of training runs."""
    return choice("run", "train_step{<cluster>}", every=every)


def model() -> boards.QueryVariable:
    """Return the choice of served models."""
    return choice("model_name", 'llm_tokens_total{engine!="", <cluster>}')


def server() -> boards.QueryVariable:
    """Return the choice of inference servers that serve the chosen models."""
    return choice("server", 'llm_tokens_total{engine!="", <cluster>, model_name=~"$model_name"}')
