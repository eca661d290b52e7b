"""CVH with labels (Kumar and Udupa, IJCAI 2011), written from the text."""

from __future__ import annotations

from typing import ClassVar

from fusehash.hashers.baselines.cvh import CVH


class SupervisedCVH(CVH):
    """Cross-View Hashing (Kumar and Udupa, IJCAI 2011) with labels: items that share labels get near codes.

        max  sum_{m != n} tr A_m'X_m' S X_n A_n      s.t.  sum_m A_m'(X_m'X_m + ridge I)A_m = I,      S = EE' + I

    E are the label rows scaled to norm 1, so that (EE')_ij is the cosine of the labels of i and j; S is never formed.
    It is CCA (see `CVH`, which also says how codes are made and what happens beyond the shared directions) with
    X_m'S X_n in the place of X_m'X_n.

    Written from the text: the codes in circulation have the unsupervised form alone. The paper's objective has terms
    within the views as well, X_m'(2L + (M-1) D)X_m with D the row sums of S and L = D - S. They are left out: D weighs
    an item by the size of its class, and then directions of the small classes win over those that views share. The
    paper leaves the choice of S open. EE' has no more directions than classes; the I (a pair is also similar to itself)
    is so small beside it that it only decides how bits go on beyond them: with canonical directions.

    Parameters
    ----------
    n_bits : code length, a multiple of 8.
    ridge : relative to the mean diagonal of X'X.
    random_state : seed of the directions beyond the shared ones; nothing else is random.
    n_threads, callback : as in AGSFH.
    """

    method: ClassVar[str] = "scvh"
    summary: ClassVar[str] = "cross-view hashing with the similarity of labels"
    supervised: ClassVar[bool] = True
