"""Numbers as people read them."""


def clock(seconds: float) -> str:
    """`under 1 s`, `42 s`, `3.4 min`, `1.27 h`."""
    if 0 < seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.2f} h"


def quantity(number: float) -> str:
    """`1,536`, `3.00 M`, `1.55e+13` as `15.5 T`: three digits and a prefix from a million on."""
    for limit, prefix in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(number) >= limit:
            shown = number / limit
            return f"{shown:.{2 if abs(shown) < 10 else 1 if abs(shown) < 100 else 0}f} {prefix}"
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.3g}"
