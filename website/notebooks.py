"""The notebooks of examples/ as pages of the site: their text, code and the outputs that are kept in them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

__all__ = ["NotebookPage", "render_notebook"]

NotebookPage = tuple[str, dict[str, bytes]]
"""A page, and the pictures that it shows, by file name."""


def render_notebook(path: Path) -> NotebookPage:
    """A notebook as Markdown beside its pictures."""
    notebook: dict[str, Any] = json.loads(path.read_text("utf-8"))
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            elif "image/png" in output["data"]:
                name = f"{path.stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(output["data"]["image/png"])
                parts.append(f"![What the code above draws]({name})")
    first, *rest = parts
    note = f"[This notebook](../../examples/{path.name}) is in `examples/`; the tests run it."
    return "\n\n".join([first, note, *rest]) + "\n", pictures
