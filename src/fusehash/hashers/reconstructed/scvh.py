"""CVH with labels (Kumar and Udupa, IJCAI 2011), written from the text."""

from __future__ import annotations

from typing import ClassVar

from fusehash.hashers.baselines.cvh import CVH


class SupervisedCVH(CVH):
    """Cross-View Hashing with labels: items that share labels get near codes.

        max  sum_{m != n} tr A_m'X_m' S X_n A_n      s.t.  sum_m A_m'(X_m'X_m + ridge I)A_m = I,      S = EE' + I

    E are the label rows scaled to norm 1, so that (EE')_ij is the cosine of the labels of i and j; S is never formed.
    This is `CVH`, which describes codes and bits beyond the shared directions, with X_m'S X_n instead of X_m'X_n.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    ridge : float, default 0.01
        Relative to the mean diagonal of X'X.

    Notes
    -----
    The public codes have the unsupervised form alone. The paper's objective has terms within the views as well,
    X_m'(2L + (M-1) D)X_m with D the row sums of S and L = D - S. They are left out: D weights an item by the size of
    its class, and then directions of the small classes win over those that views share. The choice of S is ours.

    References
    ----------
    S. Kumar, R. Udupa. Learning Hash Functions for Cross-View Similarity Search. IJCAI 2011.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.SupervisedCVH(n_bits=16, random_state=0).fit(data.views, data.labels).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "scvh"
    summary: ClassVar[str] = "cross-view hashing with the similarity of labels"
    supervised: ClassVar[bool] = True
