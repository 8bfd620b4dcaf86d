"""lpxdoctor knowledge: show what the tables know, how old it is and how sure."""

import click

from lpxdoctor.cli import _options
from lpxdoctor.cli._edges import print_document
from lpxdoctor.knowledge import survey


@click.command("knowledge", epilog=_options.examples("lpxdoctor knowledge --format json"))
@_options.output_format()
def command(form: str) -> int:
    """Show what the tables of versions, GPUs and errors know, and of when they are.

    What is newer than the tables is unknown to every check, and is never guessed. A row of low certainty gives advice
    and never a failure.

    Exit status: 0 told, 64 wrong use.
    """
    tables, newest = survey.tables(), survey.newest()
    if form == "json":
        from lpxdoctor.report.knowledge import to_json  # noqa: PLC0415 - each form is imported where it is asked for

        print_document(to_json(tables, newest))
        return 0
    names = [table.file if table.file == table.name else f"{table.file} {table.name}" for table in tables]
    width = max(map(len, names))
    print(f"{'table'.ljust(width)}  rows  oldest      newest      low certainty")
    for name, table in zip((name.ljust(width) for name in names), tables, strict=True):
        low = f"{table.low} ({table.low / table.rows:.0%})" if table.low else "-"
        print(f"{name}  {table.rows:4}  {table.oldest}  {table.newest}  {low}")
    print(
        f"\nNewest known: driver branch {newest.driver_branch}, CUDA {newest.cuda}, Xid {newest.xid},\n"
        f"vLLM {newest.vllm} (pinned: {newest.pinned_vllm})."
    )
    oldest, latest = min(table.oldest for table in tables), max(table.newest for table in tables)
    print(f"{sum(table.rows for table in tables)} rows, of {oldest} to {latest}.")
    return 0
