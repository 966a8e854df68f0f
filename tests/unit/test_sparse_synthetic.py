import hashlib
from pathlib import Path

import numpy as np
import pytest

from pipelines.config import load_config
from raydt.arrays.rng import stream_key, uniform
from raydt.arrays.sparse import concatenated
from raydt.errors import ConfigError
from raydt.examples.reading import CLASSES
from raydt.sources import Reading, SparseSynthetic, open_source

SPARSE = Reading(sparse=True)
CASES = [
    SparseSynthetic(n=3_000, irrelevant=1_000, noise=0.1, drift=2),
    SparseSynthetic(n=20_000, informative=3, irrelevant=100_000, density=2e-5, seed=-3),
    SparseSynthetic(n=500, informative=1, irrelevant=1, density=0.5),
    SparseSynthetic(n=300, informative=2, irrelevant=77, density=1.0),
    SparseSynthetic(n=300, irrelevant=100, density=0.0, permutation=5),
    SparseSynthetic(n=200, irrelevant=5_000, density=0.3),
]


def read(options, start=0):
    chunks = list(open_source(options, reading=SPARSE).rows(start))
    for chunk in chunks:
        assert chunk.X.shape == (len(chunk), 0)
        assert len(chunk.sparse) == len(chunk)
        assert (chunk.n_classes, chunk.op, chunk.bad) == (2, None, {})
    y, ids = (np.concatenate([getattr(c, name) for c in chunks]) for name in ("y", "id"))
    return concatenated([c.sparse for c in chunks]), y, ids


def same(a, b):
    np.testing.assert_array_equal(a.indices, b.indices)
    np.testing.assert_array_equal(a.indptr, b.indptr)
    assert a.n_features == b.n_features


@pytest.mark.parametrize("options", CASES, ids=str)
def test_a_row_does_not_depend_on_where_reading_starts(options, monkeypatch):
    rows, y, ids = read(options)
    assert sorted(ids.tolist()) == list(range(options.n))
    for start in (1, 63, 64, options.n // 2, options.n - 1):
        rows2, y2, ids2 = read(options, start)
        same(rows2, rows[start:])
        np.testing.assert_array_equal(y2, y[start:])
        np.testing.assert_array_equal(ids2, ids[start:])
    assert not list(open_source(options, reading=SPARSE).rows(options.n))
    monkeypatch.setattr("raydt.sources.synthetic.sparse.CHUNK_DRAWS", 1)  # other chunks, of the fewest rows
    rows3, y3, _ = read(options)
    same(rows3, rows)
    np.testing.assert_array_equal(y3, y)


def test_rows_have_room_however_many_ones_they_have(monkeypatch):
    options = CASES[-1]
    monkeypatch.setattr("raydt.sources.synthetic.sparse.CHUNK_DRAWS", 1)
    source = open_source(options, reading=SPARSE)
    source._draws = 1  # room for 64 ones at first, of which a row here has 1,500
    crowded = list(source.rows())
    assert len(crowded) > 100
    same(concatenated([c.sparse for c in crowded]), read(options)[0])


@pytest.mark.parametrize("options", [CASES[0], CASES[1], CASES[-1]], ids=str)
def test_rows_are_those_of_plain_python(options):
    rows, y, _ = read(options)
    d1, width = options.informative, options.informative + options.irrelevant
    q = 10 / options.irrelevant if options.density is None else options.density
    key, parts = stream_key(options.seed, "sparse"), options.drift + 1
    theta = uniform(stream_key(options.seed, "sparse flips"), np.arange(parts * d1)).reshape(parts, d1).tolist()
    powers = [1.0 - q]
    for _ in range(options.irrelevant.bit_length() - 1):
        powers.append(powers[-1] * powers[-1])
    for r in (0, 1, 99, options.n // 2, options.n - 1):
        u = iter(uniform(key, np.arange(r * (width + 3), (r + 1) * (width + 3))).tolist())
        label, flipped = next(u) < 0.5, next(u) < options.noise
        ones = [j for j in range(d1) if label != (next(u) < theta[r * parts // options.n][j])]
        index = d1 - 1
        while index < width:
            draw, probability = next(u), 1.0
            for p in reversed(range(len(powers))):
                if probability * powers[p] > draw:
                    probability, index = probability * powers[p], index + 2**p
            index += 1
            ones.append(index)
        assert rows.row(r).tolist() == ones[:-1]
        assert y[r] == (label != flipped)


@pytest.mark.parametrize("options", CASES, ids=str)
def test_indices_ascend_and_are_features(options):
    rows, y, _ = read(options)
    assert rows.n_features == options.informative + options.irrelevant
    assert set(y.tolist()) == {0, 1}
    for i in range(len(rows)):
        assert (np.diff(rows.row(i)) > 0).all()
        assert ((rows.row(i) >= 0) & (rows.row(i) < rows.n_features)).all()


@pytest.mark.parametrize("options", CASES, ids=str)
def test_limit_cuts_and_changes_nothing_else(options):
    options = options.model_copy(update={"permutation": None})
    short, (rows, y, _) = options.model_copy(update={"limit": 101}), read(options)
    same(read(short)[0], rows[:101])
    np.testing.assert_array_equal(read(short)[1], y[:101])
    assert open_source(short, reading=SPARSE).n_rows == 101


def test_a_permutation_only_changes_the_order():
    options = CASES[0].model_copy(update={"permutation": 3})
    (rows, y, ids), (rows0, y0, _) = read(options), read(CASES[0])
    assert ids.tolist() != sorted(ids.tolist())
    same(rows, rows0[ids])
    np.testing.assert_array_equal(y, y0[ids])


def test_bits_are_the_same_everywhere():
    digest = hashlib.sha256()
    for options in CASES:
        rows, y, _ = read(options)
        for array in (rows.indptr.astype("<i8"), rows.indices.astype("<i4"), y.astype("<i4")):
            digest.update(array.tobytes())
    assert digest.hexdigest() == "945be62da8eb29c3dbe086311ce8878190b956f63b4b41e6b94c424fbdf4ba89"


def test_a_feature_is_its_label_flipped_with_its_own_probability():
    options = SparseSynthetic(n=40_000, informative=4, irrelevant=50, density=0.02, drift=1)
    rows, y, _ = read(options)
    X = rows.dense()
    theta = uniform(stream_key(options.seed, "sparse flips"), np.arange(8)).reshape(2, 4)
    assert abs(y.mean() - 0.5) < 0.01
    for part in range(2):
        half = slice(part * 20_000, (part + 1) * 20_000)
        for label in (0, 1):
            mine = X[half][y[half] == label]
            np.testing.assert_allclose((mine[:, :4] != label).mean(axis=0), theta[part], atol=0.02)
            assert abs(mine[:, 4:].mean() - 0.02) < 0.001
    assert np.abs(theta[0] - theta[1]).max() > 0.1


def test_irrelevant_features_are_independent_and_equally_often():
    rows, _, _ = read(SparseSynthetic(n=50_000, informative=1, irrelevant=20, density=0.1))
    X = rows.dense()[:, 1:]
    # Each share is within 4.5 standard deviations, and so is each correlation.
    assert np.abs(X.mean(axis=0) - 0.1).max() < 4.5 * np.sqrt(0.09 / 50_000)
    correlation = np.corrcoef(X, rowvar=False) - np.eye(20)
    assert np.abs(correlation).max() < 4.5 / np.sqrt(50_000)
    ones, n = X.sum(axis=1), 20
    assert abs(ones.var() - n * 0.09) < 0.1


def test_gaps_are_geometric():
    q = 0.25
    rows, _, _ = read(SparseSynthetic(n=20_000, informative=1, irrelevant=64, density=q))
    first = np.array([next((j - 1 for j in rows.row(i).tolist() if j), 64) for i in range(len(rows))])
    for gap in range(8):
        assert abs((first == gap).mean() - q * (1 - q) ** gap) < 4.5 * 0.5 / np.sqrt(20_000)


def test_without_a_density_a_row_has_ten_irrelevant_ones():
    for d2, mean in ((5, 5.0), (1_000, 10.0), (1_000_000, 10.0)):
        rows, _, _ = read(SparseSynthetic(n=5_000, informative=1, irrelevant=d2))
        assert abs((rows.indices > 0).sum() / 5_000 - mean) < 0.2


def test_noise_flips_its_share_of_labels():
    clean, noisy = (read(SparseSynthetic(n=30_000, irrelevant=20, noise=noise)) for noise in (0.0, 0.2))
    same(clean[0], noisy[0])
    assert abs((clean[1] != noisy[1]).mean() - 0.2) < 0.01


def test_seeds_and_settings_show_in_the_fingerprint():
    prints = [
        open_source(o, reading=SPARSE).fingerprint() for o in (*CASES, SparseSynthetic(), SparseSynthetic(seed=8))
    ]
    assert len(set(prints)) == len(prints)


def test_the_source_says_what_it_is():
    source = open_source(SparseSynthetic(n=10), reading=SPARSE)
    assert (source.features.names, source.features.sparse) == ((), 10_010)
    assert source.features.name(17) == "indices[17]"
    assert (source.classes, source.known_classes, source.n_rows, source.positive) == ([0, 1], 2, 10, None)
    assert source.where(4) == ("synthetic sparse", 4)


def test_what_cannot_be_drawn_or_taken_is_refused():
    with pytest.raises(ConfigError, match=r"source.generator: sparse draws indices of sparse features"):
        open_source(SparseSynthetic(), reading=CLASSES)
    with pytest.raises(ConfigError, match="draws classes"):
        open_source(SparseSynthetic(), reading=Reading(regression=True, sparse=True))
    with pytest.raises(ValueError, match="more than 2147483647 features"):
        SparseSynthetic(irrelevant=2**31 - 1)


def test_it_can_be_configured(tmp_path: Path):
    file = tmp_path / "job.yaml"
    file.write_text(
        "source: {kind: synthetic, generator: sparse, n: 50, informative: 3, irrelevant: 40, density: 1e-1}\n"
        "stream: {model: incremental, warmup: 20}\nlearner: {kind: gbdt}\n"
    )
    assert load_config(file).source == SparseSynthetic(n=50, informative=3, irrelevant=40, density=0.1)
