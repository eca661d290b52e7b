"""What the tests of the page share: dropping a file, and waiting for what the page says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SEND_FILE = """([content, kind, how]) => {
    const common = { bubbles: true, cancelable: true };
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], "given", { type: kind }));
    if (how === "paste") {
        document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, ...common }));
    } else {
        for (const name of ["dragenter", "dragover", "drop"]) {
            document.body.dispatchEvent(new DragEvent(name, { dataTransfer: transfer, ...common }));
        }
    }
}"""


def status(page: Any, expected: str) -> None:
    """Wait until the live region says so."""
    page.wait_for_function("expected => document.getElementById('status').textContent.includes(expected)", arg=expected)


def shows(page: Any, count: int) -> None:
    """Wait until there are exactly so many cards."""
    page.wait_for_function("count => document.querySelectorAll('.card').length === count", arg=count)


def labels_of(page: Any, count: int) -> list[str]:
    return [str(page.locator(".card").nth(i).get_attribute("title")) for i in range(count)]


def hold(page: Any, *addresses: str) -> dict[str, Any]:
    """Keep the next requests to these addresses waiting; the dict has each as soon as it was made."""
    held: dict[str, Any] = {}

    def holder(address: str) -> Callable[[Any], object]:
        return lambda route: held.setdefault(address, route)

    for address in addresses:
        page.route(address, holder(address))
    return held
