// The content hash of a block, as defined in `tensors/layout.py`.
#pragma once

#include "interface.h"
#include "vectors.h"

namespace {

constexpr uint64_t FIRST_KEY = 0x2D358DCCAA6C78A5, FIRST_STEP = 0x1E3779B97F4A7C15;
constexpr uint64_t SECOND_KEY = 0x0BB84B93962EACC9, SECOND_STEP = 0x4F1BBCDCBFA53E0B;
constexpr uint64_t BLOCK_STEP = 0x369DEA0F31A53F85;
constexpr int MOST_WORDS = BLOCK * MOST_ITEM_BYTES / 8;

// Keys are loaded, not computed: a load costs less than an addition in a loop that is bound by additions.
struct Keys {
  uint64_t first[MOST_WORDS], second[MOST_WORDS];

  constexpr Keys() : first(), second() {
    for (int word = 0; word < MOST_WORDS; word++) {
      first[word] = FIRST_KEY + (uint64_t)word * FIRST_STEP;
      second[word] = SECOND_KEY + (uint64_t)word * SECOND_STEP;
    }
  }
};

alignas(LINE) constexpr Keys KEYS;

constexpr uint64_t scramble(uint64_t word) {
  word = (word ^ (word >> 32)) * 0x3C79AC492BA7B653;
  word = (word ^ (word >> 29)) * 0x1CE4E5B9BF58476D;
  return word ^ (word >> 32);
}

struct BlockHash {
  LongWords firsts = {}, seconds = {};
  uint64_t first = 0, second = 0;

  void add_line(const uint8_t *line, int64_t number) {
    for (int at = 0; at < LINE; at += WIDTH) {
      LongWords words = load<LongWords>(line + at);
      int64_t word = (number * LINE + at) / 8;
      firsts += product_of_halves(words ^ load<LongWords>(KEYS.first + word));
      seconds += product_of_halves(words + load<LongWords>(KEYS.second + word));
    }
  }

  // Add the bytes after the last line of a block, padded with zeros to whole words.
  void add_rest(const uint8_t *rest, int64_t size, int64_t line) {
    for (int64_t at = 0; at < size; at += 8) {
      uint64_t word = 0;
      __builtin_memcpy(&word, rest + at, size - at < 8 ? size - at : 8);
      int64_t position = (line * LINE + at) / 8;
      uint64_t one = word ^ KEYS.first[position], two = word + KEYS.second[position];
      first += (one & 0xFFFFFFFF) * (one >> 32);
      second += (two & 0xFFFFFFFF) * (two >> 32);
    }
  }

  uint64_t of_block(int64_t number) const {
    uint64_t one = first + sum_of<uint64_t>(firsts), two = second + sum_of<uint64_t>(seconds);
    return scramble(scramble(one + (uint64_t)(number + 1) * BLOCK_STEP) ^ two);
  }
};

}  // namespace
