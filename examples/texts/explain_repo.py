"""Explains a repository: finds the relevant files for a question, summarises them in parallel, answers from the summaries.

agentflow run examples/texts/explain_repo.py -b question="how are streams cut off detected?"
"""

from agentflow.workflow import TaskError, get_context, outcome, pmap, system, task


class Summary:
    summary: str
    key_points: list[str]


@task(description="Summarise one file with a question in mind")
def summarise_file(question: str, path: str, text: str) -> Summary:
    """Question: {{question}}

    Summarise what the file {{path}} has to say about it, and quote its most telling line.

    {{text}}
    """
    ...


@task(description="Answer a question from summaries of files")
def answer_question(question: str, summaries: str) -> str:
    """Question: {{question}}

    Answer it from these summaries alone, naming the files you rely on.

    {{summaries}}
    """
    ...


def main(question: str):
    def summarise(path):
        read = outcome(system.read_files(file_paths=[path]))
        if not read.notes["files_read_count"]:
            print("cannot be read, left out:", path)
            return None
        try:
            found = summarise_file(question, path, read.content)
        except TaskError as e:
            print("no summary of", path, "-", e.message)
            return {"path": path, "summary": None}
        return {"path": path, "summary": found}

    outcomes = [each for each in pmap(summarise, get_context(question, max_results=6), limit=4) if each]
    summaries = [each for each in outcomes if each["summary"]]
    if not summaries:
        raise ValueError(f"no readable file has anything to do with the question: {question}")
    return {
        "answer": answer_question(question, f"{summaries}"),
        "files": [each["path"] for each in summaries],
        "left_out": [each["path"] for each in outcomes if not each["summary"]],
    }
