"""What an index holds, next to how it is searched: codes, their ids, vectors and factors, read and changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes, check_codes, looks_reversed
from fusehash.errors import DataError, warn
from fusehash.search.arguments import K
from fusehash.search.factors import encoded
from fusehash.search.ids import check_different, check_ids
from fusehash.search.rows import NO_IDS, Ids, Reals
from fusehash.search.store import MemoryStore, Store

_LOOKED_AT = 2000  # codes of the index and new ones, to see whether bits are reversed
_NO_FACTORS = (
    "The index must keep factors for this; create it with factors=True, or by `fusehash index add --factors` with its "
    "first codes. It has none."
)


class IndexContents:
    """The codes and ids of an index, and the vectors and factors that it keeps next to them."""

    _store: Store

    @property
    def n_bits(self) -> int:
        """Width of the codes."""
        return self._store.n_bits

    @property
    def dim(self) -> int | None:
        """Numbers per vector; None if the index keeps no vectors."""
        form = getattr(self._store, "form", None)
        return None if form is None else int(form.dim)

    @property
    def vector_kind(self) -> str | None:
        """How vectors are stored, as "int8", "float16" or "float32"; None if the index keeps none."""
        form = getattr(self._store, "form", None)
        return None if form is None else str(form.kind)

    @property
    def has_factors(self) -> bool:
        """Whether the index keeps factors."""
        return bool(getattr(self._store, "has_factors", False))

    @property
    def ids(self) -> Ids:
        """All ids, ascending (read-only)."""
        ids = self._store.ids().view()
        ids.flags.writeable = False
        return ids

    def __len__(self) -> int:
        return len(self._store)

    def __contains__(self, id: object) -> bool:
        if not isinstance(id, (int, np.integer)) or not -(1 << 63) <= id < 1 << 63:
            return False
        return bool(self._store.here(np.array([id], np.int64))[0])

    def __iter__(self) -> Iterator[tuple[Ids, Codes]]:
        return self.blocks()

    def blocks(self, size: int = 65536) -> Iterator[tuple[Ids, Codes]]:
        """Iterate over all codes, as they were when the iteration began.

        Parameters
        ----------
        size : int, default 65536
            Codes per block.

        Returns
        -------
        blocks : iterator of (ids, codes), in order of id
        """
        return self._store.blocks(int(K.check("HammingIndex.blocks", "size", size)))

    def get(self, ids: ArrayLike) -> Codes:
        """Return the codes of some ids.

        Parameters
        ----------
        ids : array-like of int, shape (n,)

        Returns
        -------
        codes : uint8 array, shape (n, n_bits / 8)

        Raises
        ------
        DataError
            If an id is not in the index.
        """
        return self._store.get(check_ids(ids))

    def get_vectors(self, ids: ArrayLike) -> NDArray[Any]:
        """Return the vectors of some ids, as they are stored.

        Parameters
        ----------
        ids : array-like of int, shape (n,)

        Returns
        -------
        vectors : array, shape (n, dim)
            float32; int8 in files of earlier versions. Only "float32" keeps the lengths of vectors.

        Raises
        ------
        DataError
            If the index has no vectors, or an id is not in the index.
        """
        return self._local("vectors").vectors(check_ids(ids))

    def get_factors(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return the factors of some ids.

        Parameters
        ----------
        ids : array-like of int, shape (n,)

        Returns
        -------
        factors : float32 array, shape (n, 2)

        Raises
        ------
        DataError
            If the index has no factors, or an id is not in the index.
        """
        store = self._local("factors")
        if not store.has_factors:
            raise DataError(_NO_FACTORS)
        return store.factors(check_ids(ids))

    def add(
        self,
        codes: ArrayLike,
        ids: ArrayLike | None = None,
        vectors: ArrayLike | None = None,
        factors: ArrayLike | None = None,
    ) -> Ids:
        """Add codes.

        In memory and in a file, warns if they resemble the codes in the index only with the bits of every byte
        reversed, as NumPy packs them by default. That can be said of 100 codes or more, next to 100 or more, whose bits
        are not all alike.

        Parameters
        ----------
        codes : uint8 array-like, shape (n, n_bits / 8)
        ids : array-like of int, shape (n,), optional
            By default, count on from the highest id ever used.
        vectors : float array-like, shape (n, dim), optional
            Needed if the index keeps vectors, and only then.
        factors : float array-like, shape (n, 2), optional
            Scale and offset of every code; needed if the index keeps factors, and only then.

        Returns
        -------
        ids : int64 array, shape (n,)
            The ids of the codes.

        Raises
        ------
        DataError
            If the codes have another width, an id occurs twice or is in the index already, or vectors or factors are
            missing, zero (vectors) or not finite.
        """
        packed = self._wide(check_codes(codes, self.n_bits), factors)
        kept = self._checked_vectors(vectors, len(packed), must=True)
        new = None if ids is None else check_ids(ids, len(packed))
        if new is not None:
            check_different(new)
        if not len(packed):
            return NO_IDS.copy()
        self._warn_if_reversed(packed[:, : self.n_bits // 8])
        return self._store.add(new, packed) if kept is None else self._local("vectors").add(new, packed, kept)

    def remove(self, ids: ArrayLike) -> int:
        """Remove codes.

        Parameters
        ----------
        ids : array-like of int, shape (n,)

        Returns
        -------
        count : int

        Raises
        ------
        DataError
            If an id is not in the index.
        """
        removed = np.unique(check_ids(ids))
        if len(removed):
            self._store.remove(removed)
        return len(removed)

    def replace(
        self,
        codes: ArrayLike,
        ids: ArrayLike,
        vectors: ArrayLike | None = None,
        factors: ArrayLike | None = None,
    ) -> None:
        """Replace the codes of ids that are in the index, all at once.

        Parameters
        ----------
        codes : uint8 array-like, shape (n, n_bits / 8)
        ids : array-like of int, shape (n,)
        vectors : float array-like, shape (n, dim), optional
            By default the vectors stay as they are.
        factors : float array-like, shape (n, 2), optional
            As in `add`: other codes have other factors.

        Raises
        ------
        DataError
            If the codes have another width, or an id occurs twice or is not in the index.
        """
        packed = self._wide(check_codes(codes, self.n_bits), factors)
        kept = self._checked_vectors(vectors, len(packed), must=False)
        changed = check_ids(ids, len(packed))
        check_different(changed)
        order = np.argsort(changed, kind="stable")
        if not len(packed):
            return
        if kept is None:
            self._store.replace(changed[order], packed[order])
        else:
            self._local("vectors").replace(changed[order], packed[order], kept[order])

    def compact(self) -> None:
        """Return unused memory and, in a file or on a server, the space that removals have left."""
        self._store.compact()

    def stats(self) -> dict[str, Any]:
        """Return numbers about the index.

        Returns
        -------
        stats : dict
            Number of codes, engine, bytes in memory; of a file its path, size and revision; of a server its address.
        """
        return self._store.stats()

    def close(self) -> None:
        """Release the file or the connection to the server. An index in memory stays usable."""
        self._store.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<HammingIndex of {self.n_bits} bits {self._store}>"

    def _local(self, what: str) -> MemoryStore:
        if not isinstance(self._store, MemoryStore):
            raise DataError(f"An index on a server has no {what}; keep it in memory or in a file.")
        return self._store

    def _checked_vectors(self, vectors: ArrayLike | None, count: int, *, must: bool) -> Reals | None:
        """Vectors to store."""
        form = getattr(self._store, "form", None)
        if vectors is None:
            if form is not None and must:
                raise DataError(f"The index keeps vectors: pass one of {form.dim} numbers for each code. Got none.")
            return None
        return self._local("vectors").checked_form().checked(vectors, count)

    def _wide(self, codes: Codes, factors: ArrayLike | None) -> Codes:
        """Codes with the bytes of their factors."""
        if factors is None:
            if self.has_factors:
                raise DataError("The index keeps factors: pass two numbers for each code. Got none.")
            return codes
        if not self._local("factors").has_factors:
            raise DataError(_NO_FACTORS)
        return np.hstack([codes, encoded(factors, len(codes))])

    def _warn_if_reversed(self, codes: Codes) -> None:
        if isinstance(self._store, MemoryStore) and looks_reversed(codes, self._store.rows().codes, _LOOKED_AT):
            warn(
                "The new codes look bit-reversed: with the bits of every byte in the other order they resemble the "
                "codes in the index, as they are they do not. They are added all the same. The first bit belongs into "
                "the lowest bit of a byte: if they are reversed, remove them and add fusehash.bits.other_order(codes)."
            )
