import hashlib

import numpy as np
import pytest

from raydt.arrays.blocks import concatenated
from raydt.arrays.elementary import stream_key, uniform
from raydt.errors import ConfigError
from raydt.examples.updates import CLASSES, Reading
from raydt.sources.divided import open_source
from raydt.sources.options import SparseSynthetic
from tests.refusals import refused

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
        assert (chunk.op, chunk.bad) == (None, {})
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
    monkeypatch.setattr("raydt.sources.synthetic.CHUNK_DRAWS", 1)  # other chunks, of the fewest rows
    rows3, y3, _ = read(options)
    same(rows3, rows)
    np.testing.assert_array_equal(y3, y)


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


def test_bits_are_the_same_everywhere():
    digest = hashlib.sha256()
    for options in CASES:
        rows, y, _ = read(options)
        for array in (rows.indptr.astype("<i8"), rows.indices.astype("<i4"), y.astype("<i4")):
            digest.update(array.tobytes())
    assert digest.hexdigest() == "945be62da8eb29c3dbe086311ce8878190b956f63b4b41e6b94c424fbdf4ba89"


def test_what_cannot_be_drawn_or_taken_is_refused():
    with refused("sources.generated_indices", ConfigError):
        open_source(SparseSynthetic(), reading=CLASSES)
    with refused("sources.generated_classes", ConfigError):
        open_source(SparseSynthetic(), reading=Reading(regression=True, sparse=True))
    with refused("sources.many_features", ValueError, largest=2**31 - 1):
        SparseSynthetic(irrelevant=2**31 - 1)
