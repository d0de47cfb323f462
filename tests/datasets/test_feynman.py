"""load_feynman and list_feynman: all 120 equations, and downloads from a faulty server."""

import http.server
import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from combutab.datasets import _feynman, list_feynman, load_feynman, parse_formula

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
MADE = """Filename,Number,Output,Formula,# variables,v1_name,v1_low,v1_high,v2_name,v2_low,v2_high
I.1,1,E,m*c**2,7,m,1,5,c,2,3
I.2,2,f,exp(-t**2/2)/sqrt(2*pi),1,t,-1,1,,,
I.15.1,3,p,-ln(a)*arcsin(b/2),2,a,1,2,b,0,1
I.bad,4,y,ln(a),1,a,-2,-1,,,
I.evil,5,y,__import__('os'),1,a,1,2,,,
"""


@pytest.fixture
def home(tmp_path):
    (tmp_path / "FeynmanEquations.csv").write_text(MADE)
    bonus = MADE.replace("I.", "test_").replace("Output", "Name,Output").replace(",E,", ",Rest,E,")
    lines = bonus.splitlines()[:2]
    (tmp_path / "BonusEquations.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.fixture(scope="module")
def shared():
    if not (SHARED / "feynman" / "FeynmanEquations.csv").exists():
        pytest.skip("the AI Feynman tables are not in shared/data/feynman beside the checkout")
    return SHARED


# --- the 120 equations ------------------------------------------------------------------------


def test_the_tables_have_the_known_checksums(shared):
    for source in _feynman._SOURCES.values():
        equations = _feynman._read_equations(shared / "feynman" / source.filename)
        assert _feynman._checksum(equations) == source.checksum


def test_list_of_all_120(shared):
    table = list_feynman(shared)
    assert table["table"].value_counts().to_dict() == {"feynman": 100, "bonus": 20}
    assert table["name"].is_unique
    counted = table.set_index("name")["n_variables"]
    # The six and four rows whose own count is wrong in the files.
    assert counted[
        ["I.18.12", "I.18.14", "I.38.12", "II.37.1", "III.10.19", "III.19.51"]
    ].to_list() == [3, 4, 4, 3, 4, 5]
    assert counted[["test_12", "test_13", "test_18", "test_19"]].to_list() == [5, 5, 5, 6]
    assert table.set_index("name")["title"]["test_8"] == "Compton Scattering"


def test_every_equation_is_finite_and_right(shared):
    mpmath = pytest.importorskip("mpmath")
    sympy = pytest.importorskip("sympy")
    functions = {"ln": sympy.log, "arcsin": sympy.asin, "arccos": sympy.acos}
    table = list_feynman(shared)
    for row in table.itertuples():
        X, y = load_feynman(row.name, 500, data_home=shared, random_state=0)
        assert list(X) == [part.split(" [")[0] for part in row.variables.split("], ")]
        assert y.name == row.output
        assert np.isfinite(y).all()
        assert y.std() > 0
        # Independent: SymPy's own parser (of a trusted text) and mpmath's arithmetic.
        symbols = {column: sympy.Symbol(column) for column in X}
        theirs = sympy.parse_expr(row.formula, local_dict=symbols | functions)
        assert parse_formula(row.formula, X) == theirs
        exact = sympy.lambdify([list(symbols.values())], theirs, modules="mpmath")
        with mpmath.workdps(40):
            for i in range(3):
                value = exact([mpmath.mpf(x) for x in X.iloc[i]])
                assert abs(value.imag) == 0
                assert y[i] == pytest.approx(float(value.real), rel=1e-11), row.name


def test_draws_are_uniform_on_the_ranges(shared):
    from scipy import stats

    X, _ = load_feynman("I.15.3x", 5000, data_home=shared, random_state=0)
    for column, low, high in (("x", 5, 10), ("u", 1, 2), ("c", 3, 20), ("t", 1, 2)):
        assert stats.kstest(X[column], stats.uniform(low, high - low).cdf).pvalue > 0.01


def test_the_paper_s_names_are_known_too(shared):
    for paper, file in (("I.15.10", "I.15.1"), ("I.48.20", "I.48.2")):
        one = load_feynman(paper, 10, data_home=shared, random_state=0)
        other = load_feynman(file, 10, data_home=shared, random_state=0)
        assert one[0].equals(other[0])
        assert one[1].equals(other[1])


# --- small made tables ------------------------------------------------------------------------


def test_made_table(home):
    X, y = load_feynman("I.1", 50, data_home=home, random_state=0)
    assert list(X) == ["m", "c"]
    assert y.name == "E"
    np.testing.assert_allclose(y, X["m"] * X["c"] ** 2, rtol=1e-14)
    X, y = load_feynman("I.15.10", 50, data_home=home, random_state=0)
    np.testing.assert_allclose(y, -np.log(X["a"]) * np.arcsin(X["b"] / 2), rtol=1e-13)
    assert load_feynman("test_1", 5, data_home=home)[1].name == "E"
    table = list_feynman(home)
    assert table["n_variables"].to_list() == [2, 1, 2, 1, 1, 2]
    assert table["title"].to_list() == ["", "", "", "", "", "Rest"]


def test_noise_is_relative_to_root_mean_square(home):
    _, exact = load_feynman("I.1", 20_000, data_home=home, random_state=0)
    _, noisy = load_feynman("I.1", 20_000, noise=0.1, data_home=home, random_state=0)
    error = noisy - exact
    assert error.std() == pytest.approx(0.1 * np.sqrt((exact**2).mean()), rel=0.03)
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(20_000)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": "I.15.2"}, r"no AI Feynman equation 'I\.15\.2'; did you mean 'I\.15\.1'"),
        ({"name": "test_99"}, "'test_99'"),
        ({"name": "qqqqqq"}, "'qqqqqq'"),
        ({"name": "I.bad"}, r"I\.bad \(ln\(a\)\) has no finite value at 20 of 20 points"),
        ({"name": "I.evil"}, "can be called"),
        ({"noise": -0.1}, "noise must"),
        ({"noise": np.nan}, "noise must be"),
        ({"n_samples": 0}, "n_samples must"),
    ],
)
def test_bad_arguments(home, arguments, says):
    with pytest.raises(ValueError, match=says):
        load_feynman(**({"name": "I.1", "n_samples": 20, "data_home": home} | arguments))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Formula", "Equation", "'Formula'"),
        (",m,1,5", ",m,,5", r"I\.1: 'm' has no range, got nan to 5"),
        (",m,1,5", ",m,9,5", "'m' has no range"),
        (",m,1,5", ",m,one,5", "'m' has no range, got one to 5"),
        ("m*c**2", "", r"I\.1 has no formula or no variables"),
        (",t,-1,1", ",,,", r"I\.2 has no formula or no variables"),
        ("m*c**2,", "m*c**2,,,,", "line 2 has 14 fields, but the header has 11"),
    ],
)
def test_a_broken_table_says_what_is_wrong(home, old, new, says):
    (home / "FeynmanEquations.csv").write_text(MADE.replace(old, new))
    with pytest.raises(ValueError, match=says):
        load_feynman("I.1", data_home=home)


def test_the_checksum_is_of_what_the_table_says(tmp_path):
    def checksum(data):
        path = tmp_path / "t.csv"
        path.write_bytes(data)
        return _feynman._checksum(_feynman._read_equations(path))

    made = checksum(MADE.encode())
    same = MADE.replace("I.1,1,E,m*c**2,7", "I.1,1,E, m * c**2 ,2").replace("p,-ln", "p,~ln")
    same = same.replace("m,1,5", "m,1.0,5") + "," * 10 + "\n" + "," * 10 + "\n"
    assert checksum(b"\xef\xbb\xbf" + same.replace("\n", "\r\n").encode()) == made
    for old, new in (("m*c**2", "m*c**3"), ("c,2,3", "c,2,4"), ("I.2,2", "I.3,2"), (",E,", ",F,")):
        assert checksum(MADE.replace(old, new).encode()) != made


# --- downloads --------------------------------------------------------------------------------


class Server:
    """A real HTTP server on loopback that answers every GET with the same bytes."""

    def __init__(self):
        self.body, self.status, self.missing, self.requests = MADE.encode(), 200, 0, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                self.send_response(outer.status)
                if outer.missing is not None:
                    self.send_header("Content-Length", str(len(outer.body) + outer.missing))
                self.end_headers()
                self.wfile.write(outer.body)

            def log_message(self, *args):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/FeynmanEquations.csv"

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch, tmp_path_factory):
    pytest.importorskip("pooch")
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    running = Server()
    path = tmp_path_factory.mktemp("original") / "t.csv"
    path.write_text(MADE)
    source = _feynman._Source(
        "FeynmanEquations.csv", running.url, _feynman._checksum(_feynman._read_equations(path))
    )
    monkeypatch.setitem(_feynman._SOURCES, "feynman", source)
    yield running
    running.close()


def files_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_good_download_is_kept_and_used_again(server, tmp_path):
    X, _ = load_feynman("I.1", 10, data_home=tmp_path, random_state=0)
    assert files_in(tmp_path) == ["feynman/FeynmanEquations.csv"]
    assert (tmp_path / "feynman" / "FeynmanEquations.csv").read_text() == MADE
    again, _ = load_feynman("I.1", 10, data_home=tmp_path, random_state=0)
    assert X.equals(again)
    assert server.requests == ["/FeynmanEquations.csv"]


def test_the_default_home_is_the_user_s_cache(server, tmp_path, monkeypatch):
    import pooch

    monkeypatch.delenv("COMBUTAB_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / project)
    load_feynman("I.1", 10)
    assert files_in(tmp_path) == ["combutab/feynman/FeynmanEquations.csv"]


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        ({"status": 404, "body": b"gone"}, OSError, "404"),
        ({"status": 500}, OSError, "500"),
        ({"missing": 100}, OSError, "cannot download"),
        ({"body": MADE.encode()[:200], "missing": None}, ValueError, "line 4 has 9 fields"),
        ({"body": MADE[: MADE.index("I.bad")].encode(), "missing": None}, ValueError, "checksum"),
        ({"body": b""}, ValueError, r"is not the table: FeynmanEquations\.csv is empty"),
        ({"body": b"<html><body>Moved, see there</body></html>"}, ValueError, "is not the table"),
        ({"body": b"\x00\x01\xff"}, ValueError, "NUL bytes"),
        (
            {"body": MADE.replace("m*c**2", "m*c**3").encode()},
            ValueError,
            r"content of checksum [0-9a-f]{64}, expected [0-9a-f]{64}",
        ),
    ],
)
def test_bad_download_leaves_nothing(server, tmp_path, fault, error, says):
    vars(server).update(fault)
    with pytest.raises(error, match=says) as caught:
        load_feynman("I.1", data_home=tmp_path)
    message = str(caught.value)
    assert server.url in message
    assert "pass data_home=FOLDER (or set COMBUTAB_DATA)" in message
    assert str(tmp_path) not in message
    assert list((tmp_path / "feynman").iterdir()) == []
    # A later try, when the server is well again, works.
    vars(server).update(status=200, missing=0, body=MADE.encode())
    assert len(load_feynman("I.1", 7, data_home=tmp_path)[0]) == 7


def test_a_home_that_cannot_hold_the_download(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot keep a download in"):
        load_feynman("I.1", data_home=tmp_path / "file")
    assert server.requests == []


def test_without_pooch_the_error_names_both_ways_out(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match="pip install pooch"):
        load_feynman("I.1", data_home=tmp_path)


def test_local_tables_need_neither_pooch_nor_sympy(home, monkeypatch):
    for name in ("pooch", "sympy"):
        monkeypatch.setitem(sys.modules, name, None)
    X, _ = load_feynman("I.1", 5, data_home=home)
    assert isinstance(X, pd.DataFrame)
