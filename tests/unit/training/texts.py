"""Small files of public text, in the columns of Wikipedia and of StackExchange, and data sets that are made of them."""

import gzip
import json
import random

import pyarrow
import pyarrow.parquet

from scaling_study.spec import Dataset, DataSource, DocumentFormat, TextSource

_WORDS = ["".join(random.Random(number).choices("abcdeilmnorst", k=3 + number % 6)) for number in range(400)]


def words(seed, count):
    return " ".join(random.Random(seed).choices(_WORDS, k=count))


def write_articles(folder, files=2, rows=20, text=words):
    """Parquet files of several row groups, with columns that are not read."""
    for file in range(files):
        numbers = [file * rows + row for row in range(rows)]
        columns = {
            "id": [str(number) for number in numbers],
            "url": ["https://en.wikipedia.org"] * rows,
            "title": [f"Article {number}" for number in numbers],
            "text": [text(number, 5 + 4 * (number % 5)) for number in numbers],
        }
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"articles-{file}.parquet", row_group_size=5)


def write_threads(folder, files=2, rows=15, text=words):
    """Gzipped JSON lines."""
    for file in range(files):
        with gzip.open(folder / f"threads-{file}.jsonl.gz", "wt", encoding="utf-8") as lines:
            for row in range(rows):
                number = 1000 + file * rows + row
                answers = [answer(f"<p>{text(number + k, 4)}</p>", score=k) for k in range(1 + row % 3)]
                question = f"<p>Thread {number} &amp; {text(number, 5)}</p>"
                lines.write(json.dumps({"qid": number, "question": question, "answers": answers}) + "\n")


def answer(text, score=0, selected=False):
    return {"answer_id": 1, "author": "a", "pm_score": score, "selected": selected, "text": text}


def articles(folder, **fields):
    return TextSource(
        **{
            "name": "articles",
            "format": DocumentFormat.WIKIPEDIA,
            "weight": 3,
            "files": (f"{folder}/articles-*.parquet",),
            **fields,
        }
    )


def threads(folder, **fields):
    return TextSource(
        **{
            "name": "threads",
            "format": DocumentFormat.STACKEXCHANGE,
            "weight": 1,
            "files": (f"{folder}/threads-*.jsonl.gz",),
            **fields,
        }
    )


def text_set(folder, **fields):
    """Most of the articles of `write_articles`, and threads of `write_threads`, in 2,300 tokens of 400 kinds."""
    return Dataset(
        **{
            "name": "texts",
            "title": "t",
            "source": DataSource.TEXT,
            "sources": (articles(folder), threads(folder)),
            "tokens": 2300,
            "vocabulary_documents": 20,
            "vocabulary": 400,
            **fields,
        }
    )
