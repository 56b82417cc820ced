import numpy as np
import pytest

from scaling_study.predict.scores import balanced_accuracy, choice_loss, score, spearman


def test_errors_by_hand():
    found = score(np.array([1.1, 0.8, 1.0, 2.4]), np.array([1.0, 1.0, 1.0, 2.0]))
    assert found.mape == pytest.approx((10 + 20 + 0 + 20) / 4)
    assert found.median == pytest.approx(15)
    assert found.bias == pytest.approx(5)


def test_correlation_of_ranks():
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 400.0])) == pytest.approx(1)
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1)
    assert spearman(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert spearman(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])) is None
    # Ties share their rank: (0, 1.5, 1.5, 3) against (0, 1, 2, 3) is 4.5 / sqrt(4.5 * 5).
    assert spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(
        4.5 / (4.5 * 5) ** 0.5
    )


def test_loss_of_a_choice():
    groups = ["a", "a", "b", "b", "c"]
    predicted, measured = np.array([1.0, 2.0, 2.0, 1.0, 1.0]), np.array([1.0, 3.0, 1.0, 1.25, 9.0])
    assert choice_loss(groups, predicted, measured) == pytest.approx((0 + 0.2) / 2)
    assert choice_loss(["a"], np.array([1.0]), np.array([1.0])) is None


def test_balanced_accuracy():
    true = np.array([True, True, False, False, False, False])
    assert balanced_accuracy(np.array([True, False, False, False, False, True]), true) == pytest.approx(
        (0.5 + 0.75) / 2
    )
    assert balanced_accuracy(true, np.ones(6, dtype=bool)) is None
