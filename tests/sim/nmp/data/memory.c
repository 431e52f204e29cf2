/* Bytes, halfwords and words with and without sign, .data and .bss, recursion, calls through
   pointers, shifts and comparisons. Exit code 0, or the number of the first check that fails. */
#include <stdint.h>

static volatile uint8_t bytes[16] = {
    0x80, 0x7F, 0xFF, 0x00, 0x01, 0x80, 0xFE, 0xFF, 1, 2, 3, 4, 5, 6, 7, 8,
};
static volatile uint32_t zeros[64];
static volatile uint32_t number = 0x89ABCDEF;

static int32_t twice(int32_t x) { return 2 * x; }
static int32_t square(int32_t x) { return x * x; }
static int32_t minus(int32_t x) { return -x; }
static int32_t (*volatile const functions[])(int32_t) = {twice, square, minus};

static __attribute__((noinline)) uint32_t ackermann(uint32_t m, uint32_t n)
{
    if (m == 0)
        return n + 1;
    return n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}

static __attribute__((noinline)) int32_t sum_of_halves(const int16_t *halves, int count)
{
    int32_t sum = 0;
    for (int i = 0; i < count; i++)
        sum += halves[i];
    return sum;
}

#define CHECK(number_of_check, condition) \
    if (!(condition))                     \
        return number_of_check

int main(void)
{
    volatile int8_t *signed_bytes = (volatile int8_t *)bytes;
    volatile int16_t *signed_halves = (volatile int16_t *)bytes;
    volatile uint16_t *halves = (volatile uint16_t *)bytes;
    volatile uint32_t *words = (volatile uint32_t *)bytes;

    CHECK(1, signed_bytes[0] == -128 && bytes[0] == 128 && signed_bytes[1] == 127);
    CHECK(2, signed_halves[0] == 0x7F80 && signed_halves[2] == -32767 && halves[2] == 0x8001);
    CHECK(3, words[1] == 0xFFFE8001u && words[3] == 0x08070605u);
    for (int i = 0; i < 64; i++)
        CHECK(4, zeros[i] == 0);
    bytes[9] = 0xAB;
    halves[5] = 0xCDEF;
    CHECK(5, words[2] == 0xCDEFAB01u);
    words[2] = 0x12345678u;
    CHECK(6, bytes[8] == 0x78 && halves[5] == 0x1234);
    CHECK(7, (int32_t)number >> 4 == (int32_t)0xF89ABCDE && number >> 4 == 0x089ABCDEu);
    CHECK(8, number << 8 == 0xABCDEF00u && (number ^ 0xFFFFFFFFu) == 0x76543210u);
    for (uint32_t shift = 0; shift < 32; shift++)
        CHECK(9, (number << shift) >> shift == (number & (0xFFFFFFFFu >> shift)));
    CHECK(10, (int32_t)number < 5 && number > 5 && !((int32_t)number >= 0));
    CHECK(11, functions[0](21) == 42 && functions[1](-7) == 49 && functions[2](3) == -3);
    CHECK(12, ackermann(2, 3) == 9 && ackermann(1, 10) == 12);
    int32_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += 3 * signed_bytes[i];
    CHECK(14, sum == 3 * (-128 + 127 - 1));
    CHECK(15, sum_of_halves((const int16_t *)bytes, 4) == 0x7F80 + 0xFF - 32767 - 2);
    zeros[63] = number;
    CHECK(13, zeros[63] == 0x89ABCDEFu && zeros[62] == 0);
    return 0;
}
