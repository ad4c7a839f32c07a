"""PTX, as NVRTC emits it, as C++: a kernel becomes a function, and each register a variable.

What an instruction does stands in `device.hpp`, in functions of its name; here operands get their
types, and every access and barrier its line of PTX, by which faults are told. Instructions that
kernels have no use for are an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_STATE_SPACES = ("global", "shared", "param")
_TYPE = re.compile(r"[subf](8|16|32|64)|pred")
_SPECIAL = {
    "%tid.x": "current->thread",
    "%ntid.x": "launch->block",
    "%ctaid.x": "current->block->number",
    "%nctaid.x": "launch->grid",
    "%laneid": "current->lane",
    "%cluster_ctarank": "current->block->rank",
}
_COMPARISONS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}

#: Instructions of which operands and result are of the type that they name, but for counts.
_ARITHMETIC = {
    "add": "", "sub": "", "mul": "", "min": "", "max": "", "neg": "", "abs": "", "div": "",
    "rem": "", "sqrt": "", "rcp": "", "ex2": "", "lg2": "", "fma": "", "and": "", "or": "",
    "xor": "", "not": "", "shl": " u32", "shr": " u32", "bfi": "  u32 u32", "copysign": "",
}  # fmt: skip


def width(name: str) -> int:
    """Bytes of a type."""
    return 1 if name == "pred" else int(name[1:]) // 8


def cpp_type(name: str) -> str:
    """A type of PTX as `device.hpp` names it; bits are unsigned numbers."""
    return "bool" if name in ("pred", "bool") else name.replace("b", "u")


@dataclass
class Translation:
    """One kernel.

    Attributes
    ----------
    code : str
        C++, a function ``kernel``.
    parameters : list of (offset, type)
    sites : dict
        Of lines of PTX, "file:line" of the source, the innermost first where it was inlined.
    barriers, accesses : dict
        Lines of PTX with a barrier of a block or a cluster, of which both halves count, and those
        that load or store; and the stretch each is in.
    blocks : list of (int, int)
        Instructions of each stretch without a jump, and how many of them are of 64-bit floats.
    """

    ptx: str
    entry: str
    code: str = ""
    parameters: list[tuple[int, str]] = field(default_factory=list)
    sites: dict[int, tuple[str, ...]] = field(default_factory=dict)
    barriers: dict[int, int] = field(default_factory=dict)
    accesses: dict[int, int] = field(default_factory=dict)
    blocks: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._offsets: dict[str, int] = {}
        self._prefixes: dict[str, str] = {}  # of registers, and their types
        self._scopes: list[dict[str, str]] = [{}]
        self._variables: dict[str, str] = {}
        self._line = 0
        self._site: tuple[str, ...] = ()
        self._used = ""
        self._files = dict(re.findall(r'\.file\s+(\d+)\s+"(?:[^"]*/)?([^"/]+)"', self.ptx))
        header = re.search(rf"\.entry\s+{re.escape(self.entry)}\s*\((.*?)\)", self.ptx, re.S)
        assert header is not None, self.entry
        self._read_parameters(header[1])
        statements = [""]
        self._begin_block(statements)
        for line, text in self._statements(self.ptx.index("{", header.end()) + 1):
            self._line = line
            statements += self._translated(text)
        declared = "".join(f"{type_} {name} = {{}};\n" for name, type_ in self._variables.items())
        self.code = "static void kernel(const u8* parameters) {\n" + declared
        self.code += "\n".join(statements) + "\n}\n"
        self.code += f"static const u32 kNumBlocks = {len(self.blocks)};\n"

    def place_of(self, line: int) -> str:
        """Where a line of PTX comes from."""
        return " in ".join(self.sites.get(line, ("the end",)))

    def _read_parameters(self, header: str) -> None:
        offset = 0
        for parameter in filter(None, map(str.strip, header.split(","))):
            _, type_, *_, name = parameter.split()
            size = width(type_[1:])
            offset = (offset + size - 1) // size * size
            self._offsets[name] = offset
            self.parameters.append((offset, cpp_type(type_[1:])))
            offset += size

    def _statements(self, begin: int) -> Iterator[tuple[int, str]]:
        """Of the kernel's body, with the numbers of their lines."""
        text = self.ptx[begin : self.ptx.index("\n}", begin)]
        first, pending = self.ptx.count("\n", 0, begin) + 1, ""
        for number, raw in enumerate(text.split("\n"), first):
            line = raw.partition("//")[0].strip()
            if line.startswith(".loc"):
                yield number, line
                continue
            pending = f"{pending} {line}".strip()
            while pending:
                if found := re.match(r"[{}]|[\w$]+:(?!:)", pending):
                    yield number, found[0]
                    pending = pending[found.end() :].strip()
                elif ";" in pending:
                    statement, _, pending = pending.partition(";")
                    pending = pending.strip()
                    yield number, statement.strip()
                else:
                    break

    def _begin_block(self, statements: list[str]) -> None:
        statements.append(f"begin_stretch({len(self.blocks)}, {self._line});")
        self.blocks.append([0, 0])

    def _translated(self, text: str) -> list[str]:
        if text == "{":
            self._scopes.append({})
        elif text == "}":
            self._scopes.pop()
        elif text.endswith(":"):
            statements = [text.replace("$", "_") + ";"]
            self._begin_block(statements)
            return statements
        elif text.startswith(".loc"):
            found = re.findall(r"(?:\.loc|inlined_at)\s+(\d+)\s+(\d+)", text)
            self._site = tuple(f"{self._files[number]}:{line}" for number, line in found)
        elif text.startswith(".reg"):
            self._declare(text)
        elif text.startswith(".pragma"):
            if found := re.search(r"used_bytes_mask (\w+)", text):
                self._used = f", {found[1]}"  # of the next load
        elif text:
            return self._instruction(text)
        return []

    def _declare(self, text: str) -> None:
        type_, names = re.fullmatch(r"\.reg\s+\.(\w+)\s+(.*)", text).groups()  # type: ignore[union-attr]
        for name in map(str.strip, names.split(",")):
            if many := re.fullmatch(r"(%\w+)<\d+>", name):
                self._prefixes[many[1]] = cpp_type(type_)
            else:
                variable = f"{name[1:]}_{len(self._variables)}"
                self._scopes[-1][name] = variable
                self._variables[variable] = cpp_type(type_)

    def _instruction(self, text: str) -> list[str]:
        guard, opcode, rest = re.fullmatch(r"(?:@(!?%\w+)\s+)?(\S+)\s*(.*)", text).groups()  # type: ignore[union-attr]
        name, *modifiers = opcode.split(".")
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest.replace("|", ","))
        self.sites[self._line] = self._site
        self.blocks[-1][0] += 1
        self.blocks[-1][1] += "f64" in modifiers and name not in ("ld", "st", "mov", "selp")
        types = [m for m in modifiers if _TYPE.fullmatch(m)]
        type_ = types[-1] if types else "b32"
        handler = getattr(self, f"_{name}", None)
        if "local" in modifiers:
            raise NotImplementedError(f"{text}: kernels are to use no stack")
        if handler is not None:
            code = handler(modifiers, operands, type_)
        elif name in _ARITHMETIC:
            code = self._arithmetic(name, modifiers, operands, type_)
        else:
            raise NotImplementedError(text)
        if guard:
            condition = self._variable(guard.lstrip("!"))
            code = f"if ({'!' * guard.startswith('!')}{condition}) {{ {code} }}"
        statements = [code]
        if name == "bra":
            self._begin_block(statements)
        return statements

    # Operands.

    def _variable(self, register: str) -> str:
        for scope in reversed(self._scopes):
            if register in scope:
                return scope[register]
        prefix = re.fullmatch(r"(%[a-z]+)\d+", register)
        assert prefix is not None, register
        name = f"{register[1:]}_"
        self._variables.setdefault(name, self._prefixes[prefix[1]])
        return name

    def _value(self, operand: str, type_: str) -> str:
        wanted = cpp_type(type_)
        if operand in _SPECIAL:
            return f"as<{wanted}>({_SPECIAL[operand]})"
        if operand.startswith("%"):
            name = self._variable(operand)
            return name if self._variables[name] == wanted else f"as<{wanted}>({name})"
        if found := re.fullmatch(r"0f(\w{8})", operand):
            return f"as<{wanted}>(as<f32>(0x{found[1]}u))"
        if found := re.fullmatch(r"0d(\w{16})", operand):
            return f"as<{wanted}>(as<f64>(u64(0x{found[1]})))"
        if re.fullmatch(r"-?\w+", operand) and operand.lstrip("-")[0].isdigit():
            return f"({wanted}){int(operand, 0) & 0xFFFFFFFFFFFFFFFF:#x}"
        return f"({wanted})kSharedBase"  # the array in shared memory

    def _set(self, operand: str, value: str) -> str:
        if operand == "_":
            return f"(void)({value});"
        name = self._variable(operand)
        return f"{name} = as<{self._variables[name]}>({value});"

    def _address(self, operand: str) -> str:
        base, _, offset = operand[1:-1].replace(" ", "").partition("+")
        address = self._value(base, "u64" if base[:3] == "%rd" else "u32")
        return f"u64({address} + {int(offset or '0', 0)})"

    @staticmethod
    def _elements(operand: str) -> list[str]:
        return re.findall(r"[^{},\s]+", operand)

    # Instructions.

    def _arithmetic(self, name: str, modifiers: list[str], operands: list[str], t: str) -> str:
        own = cpp_type(t)
        if name in ("add", "sub", "neg") and own[0] == "s":
            own = "u" + own[1:]  # wraps around
        types = [found or own for found in _ARITHMETIC[name].split(" ")]
        types += [own] * (len(operands) - 1 - len(types))
        flush = own == "f32" and "ftz" in modifiers
        values = [self._value(x, y) for x, y in zip(operands[1:], types, strict=False)]
        values = [f"flushed({x})" if flush else x for x in values]
        if "approx" in modifiers:
            name += "_approx"
        if "NaN" in modifiers:
            name += "_or_nan"
        if "rz" in modifiers:
            name += "_towards_zero"
        value = f"{name}_<{own}>({', '.join(values)})"
        value = f"saturated({value})" if "sat" in modifiers else value
        return self._set(operands[0], f"flushed({value})" if flush else value)

    def _mul(self, modifiers: list[str], operands: list[str], t: str) -> str:
        if t[0] == "f":
            return self._arithmetic("mul", modifiers, operands, t)
        half = next(m for m in modifiers if m in ("lo", "hi", "wide"))
        a, b = (self._value(x, t) for x in operands[1:3])
        return self._set(operands[0], f"mul_{half}<{cpp_type(t)}>({a}, {b})")

    def _mad(self, modifiers: list[str], operands: list[str], t: str) -> str:
        assert "lo" in modifiers
        a, b, c = (self._value(x, "u" + t[1:]) for x in operands[1:])
        return self._set(operands[0], f"{a} * {b} + {c}")

    def _setp(self, modifiers: list[str], operands: list[str], t: str) -> str:
        assert len(modifiers) == (3 if "ftz" in modifiers else 2), modifiers
        a, b = (self._value(x, t) for x in operands[1:])
        if "ftz" in modifiers:
            a, b = f"flushed({a})", f"flushed({b})"
        if t[0] == "f" and modifiers[0].endswith("u"):  # or one of them is no number
            value = f"!({a} {_COMPARISONS[_OPPOSITE[modifiers[0][:-1]]]} {b})"
            if modifiers[0] == "neu":
                value = f"({a} != {b})"
        else:
            value = f"({a} {_COMPARISONS[modifiers[0]]} {b})"
        return self._set(operands[0], value)

    def _selp(self, modifiers: list[str], operands: list[str], t: str) -> str:
        a, b = (self._value(x, t) for x in operands[1:3])
        return self._set(operands[0], f"{self._value(operands[3], 'pred')} ? {a} : {b}")

    def _mov(self, modifiers: list[str], operands: list[str], t: str) -> str:
        target, source = operands
        if target[0] == "{":
            parts = self._elements(target)
            bits, size = self._value(source, f"b{t[1:]}"), 8 * width(t) // len(parts)
            return " ".join(
                self._set(x, f"u{size}({bits} >> {i * size})") for i, x in enumerate(parts)
            )
        if source[0] == "{":
            parts = self._elements(source)
            size = 8 * width(t) // len(parts)
            joined = (
                f"u64({self._value(x, f'u{size}')}) << {i * size}" for i, x in enumerate(parts)
            )
            return self._set(target, f"u{t[1:]}({' | '.join(joined)})")
        return self._set(target, self._value(source, t))

    def _cvt(self, modifiers: list[str], operands: list[str], t: str) -> str:
        to, source = (m for m in modifiers if _TYPE.fullmatch(m))
        if source == "f16":
            return self._set(operands[0], f"from_half({self._value(operands[1], 'u16')})")
        value = self._value(operands[1], source)
        if "ftz" in modifiers and source == "f32":
            value = f"flushed({value})"
        whole = next((m for m in modifiers if m in ("rni", "rzi", "rmi", "rpi")), "")
        if whole:
            value = f"whole_{whole}({value})"
        if source[0] == "f" and to[0] != "f":
            return self._set(operands[0], f"whole_number<{cpp_type(to)}>({value})")
        value = f"{cpp_type(to)}({value})"
        if "sat" in modifiers:
            value = f"saturated({value})"
        return self._set(
            operands[0], f"flushed({value})" if "ftz" in modifiers and to == "f32" else value
        )

    def _ld(self, modifiers: list[str], operands: list[str], t: str) -> str:
        space = next((m for m in modifiers if m in _STATE_SPACES), "generic")
        if space == "param":
            offset = self._offsets[operands[1][1:-1]]
            return self._set(operands[0], f"at<{cpp_type(t)}>(parameters + {offset})")
        self.accesses[self._line] = len(self.blocks) - 1
        targets = self._elements(operands[0])
        size = width(t)
        code = f"const u8* from = {space}_<{size * len(targets)}>"
        code += f"({self._address(operands[1])}, kLoad, {self._line}{self._used});"
        self._used = ""
        for i, target in enumerate(targets):
            code += " " + self._set(target, f"at<{cpp_type(t)}>(from + {i * size})")
        return f"{{ {code} }}"

    def _st(self, modifiers: list[str], operands: list[str], t: str) -> str:
        space = next((m for m in modifiers if m in _STATE_SPACES), "generic")
        self.accesses[self._line] = len(self.blocks) - 1
        sources = self._elements(operands[1])
        size = width(t)
        code = f"u8* to = {space}_<{size * len(sources)}>"
        code += f"({self._address(operands[0])}, kStore, {self._line});"
        for i, source in enumerate(sources):
            code += f" at<{cpp_type(t)}>(to + {i * size}) = {self._value(source, t)};"
        return f"{{ {code} }}"

    def _atom(self, modifiers: list[str], operands: list[str], t: str) -> str:
        space = next((m for m in modifiers if m in _STATE_SPACES), "generic")
        own = cpp_type(t)
        what = next(m for m in modifiers if m in ("add", "min", "max", "or", "inc"))
        code = f"{own}& word = at<{own}>({space}_<{width(t)}>"
        code += f"({self._address(operands[1])}, kAtomic, {self._line})); {own} old = word;"
        code += f" word = {what}_<{own}>(old, {self._value(operands[2], t)});"
        return f"{{ {code} {self._set(operands[0], 'old')} }}"

    def _red(self, modifiers: list[str], operands: list[str], t: str) -> str:
        return self._atom(modifiers, ["_", *operands], t)

    def _cvta(self, modifiers: list[str], operands: list[str], t: str) -> str:
        value = self._value(operands[1], "u64")
        if "shared" in modifiers:
            value = f"u64(u32({value}))" if "to" in modifiers else f"generic_of({value})"
        return self._set(operands[0], value)

    def _mapa(self, modifiers: list[str], operands: list[str], t: str) -> str:
        address, rank = self._value(operands[1], "u64"), self._value(operands[2], "u32")
        return self._set(operands[0], f"mapped({address}, {rank}, {self._line})")

    def _bar(self, modifiers: list[str], operands: list[str], t: str) -> str:
        if modifiers[0] == "warp":
            return f"meet_warp({self._value(operands[0], 'u32')}, {self._line});"
        assert operands == ["0"], operands
        self.barriers[self._line] = len(self.blocks) - 1
        return f"meet_block({self._line});"

    def _barrier(self, modifiers: list[str], operands: list[str], t: str) -> str:
        assert modifiers[0] == "cluster", modifiers
        self.barriers[self._line] = len(self.blocks) - 1
        if modifiers[1] == "wait":
            return f"wait_for_cluster({self._line});"
        return f"arrive_at_cluster({self._line}, {str('relaxed' not in modifiers).lower()});"

    def _shfl(self, modifiers: list[str], operands: list[str], t: str) -> str:
        target, *rest = operands
        code = ""
        if len(rest) == 5:  # a predicate tells whether the source is in range
            code = self._set(rest.pop(0), "current->is_in_range")
        value, lanes, bounds, mask = (self._value(x, "u32") for x in rest)
        mode = {"up": "kUp", "down": "kDown", "bfly": "kButterfly"}[modifiers[1]]
        arguments = f"{mode}, {value}, {lanes}, {bounds}, {mask}, {self._line}"
        return self._set(target, f"shuffled({arguments})") + code

    def _redux(self, modifiers: list[str], operands: list[str], t: str) -> str:
        mode = {"add": "kSum", "min": "kLeast"}[modifiers[1]]
        value, mask = (self._value(x, "u32") for x in operands[1:])
        has_sign = t == "s32" and mode == "kLeast"
        flip = "0x80000000u" if has_sign else "0u"  # in the order of numbers without a sign
        arguments = f"{mode}, {value} ^ {flip}, 0, 0, {mask}, {self._line}"
        return self._set(operands[0], f"shuffled({arguments}) ^ {flip}")

    def _bra(self, modifiers: list[str], operands: list[str], t: str) -> str:
        return f"goto {operands[0].replace('$', '_')};"

    def _ret(self, modifiers: list[str], operands: list[str], t: str) -> str:
        return "return;"
