"""The demo's requests: a few questions, and one context larger than the accelerator's KV memory."""

from dataclasses import dataclass
from pydoc_data.topics import topics

from tandem.engine.frontend.tokenizer import Tokenizer

LONG_CONTEXT_TOKENS = 1500
_LONG_TOPICS = ("compound", "specialnames", "debugger")
_PROMPTS = (
    "The Python standard library",
    "A context manager is",
    "The with statement is used to",
    "Return a list of",
)


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """One request of the demo.

    Attributes:
        title: for the table.
        shown: end of the prompt, for the screen.
    """

    title: str
    shown: str
    token_ids: tuple[int, ...]
    max_tokens: int


def demo_requests(tokenizer: Tokenizer) -> list[DemoRequest]:
    """The long context first, so that the others stream while it is read."""
    text = "\n".join(topics[name] for name in _LONG_TOPICS)
    long_ids = tokenizer.encode(text)[:LONG_CONTEXT_TOKENS]
    tail = " ".join(tokenizer.decode(long_ids[-12:]).split())
    requests = [DemoRequest("long context", f"... {tail}", long_ids, 48)]
    for prompt in _PROMPTS:
        ids = tokenizer.encode(prompt)
        requests.append(DemoRequest(f"prompt {len(requests)}", prompt, ids, 40))
    return requests
