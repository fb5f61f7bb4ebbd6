"""Values of foreach in shell texts: a program is given the value, byte for byte, whatever is in it. A real /bin/sh runs every text."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stager.readers.native_shell import compile_shell
from stager.readers.native_template import template_of

AWKWARD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40) | st.text(
    "'\"\\$`(){}*?[]!#;&|<> \n\t~=-", max_size=40
)

# One program text, the value in every kind of place; each printf ends its output with a mark no value holds.
PLACES = r"""
# it's a comment with an apostrophe {v}
end() { printf '\001'; }
printf %s {v}; end
printf %s a{v}b; end
printf %s "{v}"; end
printf %s "a {v} 'b'"; end
printf %s '{v}'; end
printf %s 'a "{v}" b'; end
printf %s "$(printf '%s.' "{v}")"; end
printf %s "$(printf '%s.' {v})"; end
printf %s "`printf '%s.' {v}`"; end
printf %s "${unset_variable:-{v}}"; end
printf %s \{v}; end
printf %s {{v}}; end
printf %s "${v}"; end
cat <<EOF
a "{v}" 'b' \{v}
EOF
end
cat <<'EOF'
{w}
EOF
end
printf %s $((1 + 2)) | sed 's/3/three/'; end
case x in x) printf %s {v};; esac; end
"""


def expected(value: str) -> list[str]:
    plain = [value, f"a{value}b", value, f"a {value} 'b'", value, f'a "{value}" b', value + ".", value + ".", value + ".", value]
    return [*plain, "{v}", "{v}", value, f"a \"{value}\" 'b' {{v}}\n".replace("{v}", "\\{v}"), "{w}\n", "three", value]


def run(text: str, env: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(["/bin/sh", "-c", text], env={"PATH": os.defpath} | env, cwd=cwd, capture_output=True, timeout=60)
    assert done.stderr == b""
    return done.stdout.decode()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(AWKWARD)
@example("'; touch gone; '")
@example('"; touch gone; "')
@example("$(touch gone)`touch gone`")
@example("a  b\n\nc\n")
@example("*")
@example("EOF")
@example("")
def test_a_value_reaches_programs_as_it_is(tmp_path, value):
    text, holes = compile_shell(PLACES, ("v",))
    output = run(text, {"v": value} | {hole.variable: hole.value({"v": value}) for hole in holes}, tmp_path)
    assert output.split("\001")[:-1] == expected(value) if "\001" not in value else output.count(value) >= 10
    assert list(tmp_path.iterdir()) == [], "a value was run"


@settings(max_examples=300, deadline=None)
@given(
    st.text("{v}'\"\\$`()<>EOF \n#;ab", max_size=60),
    st.sampled_from(["'; touch gone; '", "$(touch gone)", "`touch gone`", '"; touch gone; "']),
)
def test_no_text_however_broken_holds_a_value(text, value):
    try:
        compiled, _ = compile_shell(text, ("v",))
    except ValueError:
        return
    assert "touch" not in compiled
    bare = compiled.replace("'\"${v}\"'", "{v}").replace('"${v}"', "{v}").replace("${v}", "{v}")
    assert bare.replace("{", "").replace("}", "").replace("$", "") == text.replace("{", "").replace("}", "").replace("$", "")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(AWKWARD)
def test_an_argument_list_carries_the_value(tmp_path, value):
    argv = [template_of(text, ("v",), strict=False).render({"v": value}) for text in ("printf", "%s", "a{v}b")]
    assert subprocess.run(argv, capture_output=True, cwd=tmp_path).stdout.decode() == f"a{value}b"


def test_parts_of_a_value_are_variables_too():
    text, holes = compile_shell('cp {tile} "{tile.stem}_x{tile.suffix}"; echo $tile__dir', ("tile",))
    assert text == 'cp "${tile}" "${tile__stem}_x${tile__suffix}"; echo $tile__dir'
    values = {hole.variable: hole.value({"tile": "raw/m31.b.fits"}) for hole in holes}
    assert values == {"tile": "raw/m31.b.fits", "tile__stem": "m31.b", "tile__suffix": ".fits", "tile__dir": "raw"}


@pytest.mark.parametrize("text", ["echo $(({v} + 1))", "cat <<'EOF'\n{v}\nEOF\n", "cat <<\\EOF\n{v}\nEOF\n"])
def test_where_a_value_cannot_stand_is_said(text):
    with pytest.raises(ValueError, match="use the variable v itself"):
        compile_shell(text, ("v",))


@pytest.mark.parametrize("text", ["awk '{print $1}' f", "echo {a,b} ${HOME} {}", "find . -exec ls {} +", "f() { echo; }"])
def test_braces_of_programs_stay(text):
    assert compile_shell(text, ("tile",)) == (text, ())
    assert template_of(text, ("tile",), strict=False).render({"tile": "x"}) == text


@pytest.mark.parametrize(
    ("text", "message"), [("cat {tiel}", "did you mean 'tile'"), ("cat {tile.stm}", "did you mean 'stem'"), ("x {tile.", None)]
)
def test_slips_are_found(text, message):
    if message is None:
        assert compile_shell(text, ("tile",))[0] == text
        return
    with pytest.raises(ValueError, match=message):
        compile_shell(text, ("tile",))
