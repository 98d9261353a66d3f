"""fio's options as users may write them: which exist here, what they take, and how a job file reads and prints.

Option names are fio's own (fio 3.33, ``fio --cmdhelp=all``). The list is an allow-list: options that name a
file, run a program or move the output belong to the service, which sets them itself.
"""

import configparser
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from volumetry.errors import nearest

SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
TIME_UNITS_S = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

RW = (
    "read",
    "write",
    "trim",
    "randread",
    "randwrite",
    "randtrim",
    "rw",
    "readwrite",
    "randrw",
    "trimwrite",
    "randtrimwrite",
)
ENGINES = ("libaio", "io_uring", "psync", "sync", "pvsync", "pvsync2", "posixaio", "nbd", "rbd")


@dataclass(frozen=True)
class Option:
    """What one fio option takes: ``kind`` is int, float, size, extent, time, flag, word or pattern."""

    kind: str
    low: float = 0
    words: tuple[str, ...] = ()
    pattern: str = ""
    hint: str = ""


_COUNT = Option("int", 1)
_SIZES = r"\d+[kKmMgG]?([,-]\d+[kKmMgG]?)*"
_PERCENT = Option("int", 0, hint="a percentage, 0 to 100", pattern="percent")

OPTIONS: dict[str, Option] = {
    "rw": Option("word", words=RW),
    "bs": Option("pattern", pattern=_SIZES, hint="a block size such as 4k, or read,write,trim sizes"),
    "bsrange": Option("pattern", pattern=_SIZES, hint="a range of block sizes such as 4k-64k"),
    "bssplit": Option("pattern", pattern=r"[0-9kKmM/:,]+", hint="sizes and percentages such as 4k/60:64k/40"),
    "blockalign": Option("size", 512),
    "bs_unaligned": Option("flag"),
    "iodepth": _COUNT,
    "iodepth_batch": _COUNT,
    "iodepth_batch_complete_min": Option("int", 0),
    "iodepth_batch_complete_max": _COUNT,
    "iodepth_low": _COUNT,
    "io_submit_mode": Option("word", words=("inline", "offload")),
    "serialize_overlap": Option("flag"),
    "numjobs": _COUNT,
    "direct": Option("flag"),
    "sync": Option("word", words=("none", "0", "1", "sync", "dsync")),
    "fsync": Option("int", 0),
    "fdatasync": Option("int", 0),
    "end_fsync": Option("flag"),
    "runtime": Option("time", 1e-3),
    "ramp_time": Option("time", 0),
    "startdelay": Option("time", 0),
    "time_based": Option("flag"),
    "size": Option("extent", 1),
    "io_size": Option("extent", 1),
    "offset": Option("extent", 0),
    "offset_increment": Option("extent", 0),
    "number_ios": _COUNT,
    "rwmixread": _PERCENT,
    "rwmixwrite": _PERCENT,
    "percentage_random": _PERCENT,
    "random_distribution": Option(
        "pattern",
        pattern=r"(random|zipf|pareto|normal|zoned|zoned_abs)(:[0-9.:/,a-z]+)?",
        hint="random, zipf:1.2, pareto:0.9, normal:20 or zoned:60/10:30/20:10/70",
    ),
    "random_generator": Option("word", words=("tausworthe", "lfsr", "tausworthe64")),
    "randseed": Option("int", 0),
    "randrepeat": Option("flag"),
    "allrandrepeat": Option("flag"),
    "norandommap": Option("flag"),
    "softrandommap": Option("flag"),
    "rw_sequencer": Option("word", words=("sequential", "identical")),
    "rate": Option("pattern", pattern=_SIZES, hint="bytes a second such as 10m, or read,write,trim rates"),
    "rate_min": Option("pattern", pattern=_SIZES, hint="bytes a second such as 1m"),
    "rate_iops": Option("pattern", pattern=r"\d+(,\d+)*", hint="I/Os a second"),
    "rate_process": Option("word", words=("linear", "poisson")),
    "thinktime": Option("time", 0),
    "thinktime_blocks": _COUNT,
    "latency_target": Option("time", 0),
    "latency_window": Option("time", 0),
    "latency_percentile": Option("float", 0),
    "refill_buffers": Option("flag"),
    "scramble_buffers": Option("flag"),
    "zero_buffers": Option("flag"),
    "buffer_compress_percentage": _PERCENT,
    "dedupe_percentage": _PERCENT,
    "verify": Option("word", words=("crc32c", "md5", "sha256", "xxhash", "crc64", "pattern")),
    "do_verify": Option("flag"),
    "verify_fatal": Option("flag"),
    "ioengine": Option("word", words=ENGINES),
    "thread": Option("flag"),
    "nice": Option("int", -20),
    "description": Option("pattern", pattern=r"[\w .,:()+/-]{0,200}", hint="plain text"),
}
ALIASES = {"readwrite": "rw", "blocksize": "bs", "timeout": "runtime", "blocksize_range": "bsrange"}
# Options that end one concurrent group of jobs and begin the next.
BARRIERS = ("stonewall", "wait_for_previous")
OURS = frozenset(
    "filename directory filename_format opendir unlink create_only group_reporting new_group name "
    "write_bw_log write_lat_log write_iops_log write_hist_log log_avg_msec log_hist_msec per_job_logs "
    "output output-format status-interval exec_prerun exec_postrun uri pool rbdname clustername clientname "
    "include unified_rw_reporting lat_percentiles clat_percentiles percentile_list json wait_for".split()
)

_HINTS = {
    "int": "a whole number",
    "float": "a number",
    "time": "a time such as 30s, 500ms or 2m",
    "size": "a size such as 4k",
    "extent": "a size such as 64m, or a percentage such as 50%",
}

Value = str | int | float | bool
Section = tuple[str, dict[str, str]]


def parse_time_s(text: str) -> float:
    """Seconds of a fio time such as ``30``, ``30s``, ``500ms``; raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|)", text.strip().lower())
    if match is None:
        raise ValueError("a time such as 30s, 500ms or 2m")
    return float(match[1]) * TIME_UNITS_S[match[2]]


def parse_size_bytes(text: str) -> int:
    """Bytes of a fio size such as ``4k``, ``64KiB``, ``1g``; raises ValueError."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise ValueError("a size such as 4k, 64m or 1g")
    return int(match[1]) * SIZE_UNITS[match[2]]


def check_option(name: str, value: Value) -> tuple[str, str]:
    """fio's own name of the option and its value as text; raises ValueError with a clause for the user."""
    name = ALIASES.get(name, name)
    if name in OURS:
        raise ValueError("is set by Volumetry itself: remove it")
    option = OPTIONS.get(name)
    if option is None:
        raise ValueError(f"is not an option that a workload may set{nearest(name, OPTIONS)}")
    return name, _check_value(option, value)


def _check_value(option: Option, value: Value) -> str:
    text = str(int(value)) if isinstance(value, bool) else str(value).strip()
    match option.kind:
        case "flag":
            if text not in ("0", "1"):
                raise ValueError(f"{text!r} is not allowed; allowed: 0, 1")
        case "word":
            if text not in option.words:
                allowed = ", ".join(option.words)
                raise ValueError(f"{text!r} is not allowed; allowed: {allowed}{nearest(text, option.words)}")
        case "pattern":
            if re.fullmatch(option.pattern, text) is None:
                raise ValueError(f"{text!r} is not allowed; allowed: {option.hint}")
        case _:
            _check_number(option, text)
    return text


def _check_number(option: Option, text: str) -> None:
    if option.kind == "extent" and (match := re.fullmatch(r"(\d+)%", text)):
        if not 1 <= int(match[1]) <= 100:
            raise ValueError(f"{text!r} is not allowed; allowed: 1% to 100%")
        return
    parsers: dict[str, Callable[[str], float]] = {
        "int": int,
        "float": float,
        "time": parse_time_s,
        "size": parse_size_bytes,
        "extent": parse_size_bytes,
    }
    hint = _HINTS[option.kind]
    try:
        number = parsers[option.kind](text)
    except ValueError:
        raise ValueError(f"{text!r} is not allowed; allowed: {option.hint or hint}") from None
    high = 100 if option.pattern == "percent" else float("inf")
    if not option.low <= number <= high:
        least = f"at least {option.low:g}" if high > 100 else f"{option.low:g} to {high:g}"
        raise ValueError(f"{text!r} is not allowed; allowed: {hint}, {least}")


def read_job_file(text: str) -> list[list[Section]]:
    """The job file as groups of sections that run at once; ``[global]`` is folded into each section.

    Groups follow one another (``stonewall``). Raises ValueError with a clause that names section and option.
    """
    parser = configparser.ConfigParser(
        delimiters=("=",), comment_prefixes=("#", ";"), allow_no_value=True, interpolation=None, strict=True
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError("is not a fio job file: " + " ".join(str(error).split())) from None
    shared: dict[str, str] = {}
    groups: list[list[Section]] = []
    for section in parser.sections():
        options, barrier = _section(section, parser.items(section, raw=True))
        if section == "global":
            shared |= options
            continue
        if barrier or not groups:
            groups.append([])
        groups[-1].append((section, shared | options))
    if not groups:
        raise ValueError("holds no job: a fio job file has at least one section besides [global]")
    return groups


def _section(section: str, items: Iterable[tuple[str, str | None]]) -> tuple[dict[str, str], bool]:
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", section) is None:
        raise ValueError(f"[{section}]: allowed in a job's name: at most 40 letters, digits and . _ -")
    options: dict[str, str] = {}
    barrier = False
    for name, value in items:
        if name in BARRIERS:
            barrier = True
            continue
        try:
            checked, text = check_option(name, "1" if value is None else value)
        except ValueError as error:
            raise ValueError(f"[{section}] {name}: {error}") from None
        options[checked] = text
    return options, barrier


def render_job_file(sections: Iterable[Section], service: Mapping[str, str]) -> str:
    """A fio job file with the service's own options under ``[global]``; the same input gives the same text."""
    lines = ["[global]", *(f"{name}={value}" for name, value in service.items())]
    for name, options in sections:
        lines += [f"[{name}]", *(f"{option}={options[option]}" for option in sorted(options))]
    return "\n".join(lines) + "\n"
