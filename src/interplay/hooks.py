"""What Snakemake's main process does around the jobs. Never run in a job or a dry run."""

from interplay.study.graph import Graph


def start(graph: Graph) -> None:
    """Before the first job."""
    graph.write_stages()


def succeed(graph: Graph) -> None:
    """After the last job, when all went well; also when there was nothing to do."""
    for page in graph.link():
        print(f"report: {page}")


def fail(graph: Graph) -> None:
    """After the last job, when one failed."""
