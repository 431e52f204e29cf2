/* Fibonacci numbers, sorted in descending order, then their CRC-32: the exit code is its low
   31 bits. */
#include <stdint.h>

enum { COUNT = 64 };

static uint32_t values[COUNT];

static uint32_t crc32(const uint8_t *bytes, uint32_t count)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (uint32_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
    return ~crc;
}

int main(void)
{
    values[1] = 1;
    for (int i = 2; i < COUNT; i++)
        values[i] = values[i - 1] + values[i - 2];
    for (int i = 1; i < COUNT; i++) {
        uint32_t moving = values[i];
        int j = i;
        for (; j > 0 && values[j - 1] < moving; j--)
            values[j] = values[j - 1];
        values[j] = moving;
    }
    return crc32((const uint8_t *)values, sizeof values) & 0x7FFFFFFF;
}
