/* All eight M instructions against shift-and-add, over edge cases and pseudo-random pairs.
   Exit code 0, or the number of the first instruction that is wrong (1 mul ... 8 remu). */
#include <stdint.h>

static const uint32_t edges[] = {
    0, 1, 2, 3, 7, 10, 0x7FFF, 0x8000, 0xFFFF, 0x10000,
    0x7FFFFFFE, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF,
};
enum { EDGES = sizeof edges / sizeof edges[0], RANDOM_PAIRS = 200 };

#define BINARY(name)                                                                 \
    static uint32_t name(uint32_t a, uint32_t b)                                     \
    {                                                                                \
        uint32_t result;                                                             \
        __asm__ volatile(#name " %0, %1, %2" : "=r"(result) : "r"(a), "r"(b));       \
        return result;                                                               \
    }
BINARY(mul)
BINARY(mulh)
BINARY(mulhsu)
BINARY(mulhu)
BINARY(div)
BINARY(divu)
BINARY(rem)
BINARY(remu)

/* The 64-bit product of unsigned numbers, by shifts and additions. */
static void product(uint32_t a, uint32_t b, uint32_t *high, uint32_t *low)
{
    uint32_t h = 0, l = 0;
    for (int bit = 31; bit >= 0; bit--) {
        h = h << 1 | l >> 31;
        l <<= 1;
        if (b >> bit & 1) {
            l += a;
            h += l < a;
        }
    }
    *high = h;
    *low = l;
}

/* Restoring division of unsigned numbers; b is not zero. */
static void division(uint32_t a, uint32_t b, uint32_t *quotient, uint32_t *remainder)
{
    uint32_t q = 0, r = 0;
    for (int bit = 31; bit >= 0; bit--) {
        uint32_t carry = r >> 31;
        r = r << 1 | (a >> bit & 1);
        if (carry || r >= b) {
            r -= b;
            q |= 1u << bit;
        }
    }
    *quotient = q;
    *remainder = r;
}

static uint32_t negate_if(uint32_t condition, uint32_t value)
{
    return condition ? -value : value;
}

static int check(uint32_t a, uint32_t b)
{
    uint32_t high, low, quotient, remainder;
    uint32_t a_negative = a >> 31, b_negative = b >> 31;

    product(a, b, &high, &low);
    if (mul(a, b) != low)
        return 1;
    if (mulh(a, b) != high - (a_negative ? b : 0) - (b_negative ? a : 0))
        return 2;
    if (mulhsu(a, b) != high - (a_negative ? b : 0))
        return 3;
    if (mulhu(a, b) != high)
        return 4;

    if (b)
        division(negate_if(a_negative, a), negate_if(b_negative, b), &quotient, &remainder);
    if (div(a, b) != (b ? negate_if(a_negative ^ b_negative, quotient) : 0xFFFFFFFFu))
        return 5;
    if (rem(a, b) != (b ? negate_if(a_negative, remainder) : a))
        return 7;
    if (b)
        division(a, b, &quotient, &remainder);
    if (divu(a, b) != (b ? quotient : 0xFFFFFFFFu))
        return 6;
    if (remu(a, b) != (b ? remainder : a))
        return 8;
    return 0;
}

int main(void)
{
    for (int i = 0; i < EDGES; i++)
        for (int j = 0; j < EDGES; j++) {
            int wrong = check(edges[i], edges[j]);
            if (wrong)
                return wrong;
        }
    uint32_t state = 1;
    for (int i = 0; i < RANDOM_PAIRS; i++) {
        uint32_t pair[2];
        for (int j = 0; j < 2; j++) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            pair[j] = state;
        }
        int wrong = check(pair[0], pair[1] >> (i & 31));
        if (wrong)
            return wrong;
    }
    return 0;
}
