"""Modular powers: the computation that is cheap to ask for and hopeless to guess."""

from __future__ import annotations

from pydantic import field_validator

from callwright.envs.tasks.family import Dials, Draw
from callwright.envs.tasks.world import Sizes, evenly, number


class PowerDials(Dials):
    """Decimal digits of the exponent and of the modulus; each one number, or several to draw from."""

    exponent_digits: Sizes = evenly(2)
    modulus_digits: Sizes = evenly(2)

    @field_validator("exponent_digits", "modulus_digits")
    @classmethod
    def _in_range(cls, digits: dict[int, float]) -> dict[int, float]:
        if not all(1 <= count <= 60 for count in digits):
            raise ValueError("operand digits must lie between 1 and 60")
        return digits

    @field_validator("modulus_digits")
    @classmethod
    def _hard_to_guess(cls, digits: dict[int, float]) -> dict[int, float]:
        if min(digits) < 2:
            raise ValueError("modulus_digits must be at least 2, or the answer can be guessed")
        return digits

    def exponent_and_modulus(self, draw: Draw) -> tuple[int, int]:
        """The two operands that every modular power has."""
        exponent = number(draw.rng, draw.size(self.exponent_digits))
        return exponent, number(draw.rng, draw.size(self.modulus_digits))


def modpow_program(base: int | str, exponent: int, modulus: int) -> str:
    """The one-line program of the gold call."""
    return f"print(pow({base},{exponent},{modulus}))"
