"""Reply parsers: kind to form, strict in substance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kg.replies import description_then_verdict, fold, name, names, verdict, verdict_then_description

OPTIONS = ["Double Slam", "Heavy Tail Slam", "Bite", "360 Tail Spin", "Rush, then Bite", "None", "charging phase", "Charging Phase"]


@pytest.mark.parametrize(
    ("reply", "chosen"),
    [
        ("Double Slam", ("Double Slam",)),
        ("double slam.", ("Double Slam",)),
        ("Response: 'Double Slam'; \"Bite\"", ("Double Slam", "Bite")),
        ("**Your Response:** Bite；Double Slam", ("Bite", "Double Slam")),
        ("- Bite\n- Double  Slam\n", ("Bite", "Double Slam")),
        ("1. Bite\n2. 360 Tail Spin", ("Bite", "360 Tail Spin")),
        ("```\nBite; Bite\n```", ("Bite",)),
        ("‘Bite’ (Condition: when hit)", ("Bite",)),
        ("Bite, Double Slam", ("Bite", "Double Slam")),
        ("Rush, then Bite", ("Rush, then Bite",)),
        ("<think>Double Slam looks right</think>Bite", ("Bite",)),
        ("Charging Phase", ("Charging Phase",)),
        ("charging phase", ("charging phase",)),
        ("None", ("None",)),
    ],
)
def test_names_in_many_forms(reply: str, chosen: tuple[str, ...]) -> None:
    found = names(OPTIONS)(reply)
    assert found.chosen == chosen
    assert not found.dropped


@pytest.mark.parametrize("reply", ["Slam", "Double Slams", "The monster uses Bite", "CHARGING PHASE", "Bite or Double Slam"])
def test_what_is_on_no_list_is_dropped_and_never_guessed(reply: str) -> None:
    found = names(OPTIONS)(reply)
    assert found.chosen == ()
    assert found.dropped == (reply,)
    assert found.unclear


@pytest.mark.parametrize(
    ("reply", "chosen", "dropped"),
    [
        ("Leap; Hit; run", ("Leap; Hit", "run"), ()),
        ("leap；Hit;run", ("Leap; Hit", "run"), ()),
        ("1. Leap; Hit\n2. run", ("Leap; Hit", "run"), ()),
        ("Hit; run; Leap", ("Hit", "run"), ("Leap",)),
        ("A\nB; run; Hit", ("A\nB", "run", "Hit"), ()),
        ("run; Hit; run; fall", ("run", "Hit; run; fall"), ()),
    ],
)
def test_an_option_may_hold_separators(reply: str, chosen: tuple[str, ...], dropped: tuple[str, ...]) -> None:
    found = names(["Leap; Hit", "run", "Hit", "A\nB", "Hit; run; fall"])(reply)
    assert (found.chosen, found.dropped) == (chosen, dropped)


@pytest.mark.parametrize("reply", ["Leap", "Le\u200bap", "\u2066Leap\u2069"])
def test_what_is_not_seen_parts_no_name_from_its_reply(reply: str) -> None:
    assert names(["Leap", "Bite"])(reply).chosen == ("Leap",)
    assert names(["Le\u200bap", "Bite"])(reply).chosen == ("Le\u200bap",)
    assert names(["Leap", "Le\u200bap"])(reply).chosen == ((reply,) if reply in ("Leap", "Le\u200bap") else ())


def test_none_is_an_answer_and_silence_is_not() -> None:
    parse = names(["Bite"])
    assert parse("None.").none and not parse("None.").unclear
    assert parse("").unclear
    assert parse("None; Bite").chosen == ("Bite",) and not parse("None; Bite").none


def test_one_name_or_nothing() -> None:
    parse = name(["Rathian", "Pink Rathian"])
    assert parse("“Pink Rathian”.") == "Pink Rathian"
    assert parse("Rathian; Pink Rathian") is None
    assert parse("Rathalos") is None


@pytest.mark.parametrize("reply", ["Yes", "yes.", "**Yes**", "'Yes'", "Answer: Yes", "Yes, it is.", "yes!", "Yes。", "- Yes", "Yes\nfor"])
def test_yes(reply: str) -> None:
    assert verdict(reply).value is True


@pytest.mark.parametrize("reply", ["No", "no.", "No, yes would be wrong", "**No**; they differ", "Response: No"])
def test_no(reply: str) -> None:
    assert verdict(reply).value is False


@pytest.mark.parametrize("reply", ["", "Yesterday", "yes or no", "Nobody", "I think yes", "Yes. No.", "No; Yes", "Notably, yes", "YesNo"])
def test_could_not_tell(reply: str) -> None:
    assert verdict(reply).value is None


def test_verdict_with_description_both_ways() -> None:
    assert verdict_then_description("Yes; It bites; then roars.").description == "It bites; then roars."
    assert verdict_then_description("No").value is False
    found = description_then_verdict("It bites ; then roars . ; Yes")
    assert found.value is True and found.description == "It bites ; then roars ."
    assert description_then_verdict("It bites.").value is None
    assert description_then_verdict("It bites.").description == "It bites."
    assert description_then_verdict("No").value is False


safe = st.text(st.characters(categories=["L", "N"], max_codepoint=0x2FFF), min_size=1, max_size=12).filter(
    lambda text: fold(text) not in ("none", "") and text.strip() == text
)


@given(st.lists(safe, min_size=1, max_size=8, unique_by=fold), st.data())
def test_what_is_written_is_read_back(options: list[str], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(options), unique=True))
    reply = data.draw(st.sampled_from(["; ", ";", "；", "\n", " ; "])).join(chosen) or "None"
    found = names(options)(reply)
    assert found.chosen == tuple(chosen)
    assert not found.dropped


@given(st.text(max_size=200), st.lists(safe, max_size=4, unique_by=fold))
def test_no_reply_breaks_a_parser(reply: str, options: list[str]) -> None:
    assert set(names(options)(reply).chosen) <= set(options)
    for parse in (verdict, verdict_then_description, description_then_verdict):
        assert parse(reply).value in (True, False, None)
