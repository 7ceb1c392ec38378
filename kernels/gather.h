// Copy elements of a strided tensor contiguously in C order.
#pragma once

#include "elements.h"
#include "interface.h"
#include "vectors.h"

namespace {

constexpr int TILE = 8;    // rows and columns of a transposed matrix that are reordered at once
constexpr int AHEAD = 24;  // columns to prefetch, because they are far apart in memory

// Interleave the lanes of two vectors: those of their first halves, or those of their second.
#if defined(__clang__) || __GNUC__ >= 12
#define FIRST_IN_TURN(one, other) __builtin_shufflevector(one, other, 0, 8, 1, 9, 2, 10, 3, 11)
#define SECOND_IN_TURN(one, other) __builtin_shufflevector(one, other, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define FIRST_IN_TURN(one, other) __builtin_shuffle(one, other, (decltype(one)){0, 8, 1, 9, 2, 10, 3, 11})
#define SECOND_IN_TURN(one, other) __builtin_shuffle(one, other, (decltype(one)){4, 12, 5, 13, 6, 14, 7, 15})
#endif

template <class Item> struct Tile {
  typedef VECTOR(Item, sizeof(Item) * TILE) Line;

  // Write columns as rows; `below` and `next_row` are distances in bytes.
  static void transpose(const uint8_t *source, int64_t below, uint8_t *target, int64_t next_row) {
    Line rows[TILE], turned[TILE];
    for (int row = 0; row < TILE; row++) rows[row] = load<Line>(source + row * below);
    for (int turn = 0; turn < 3; turn++) {  // after three rounds each row has one lane of every row
      for (int row = 0; row < TILE / 2; row++) {
        turned[2 * row] = FIRST_IN_TURN(rows[row], rows[row + TILE / 2]);
        turned[2 * row + 1] = SECOND_IN_TURN(rows[row], rows[row + TILE / 2]);
      }
      for (int row = 0; row < TILE; row++) rows[row] = turned[row];
    }
    for (int row = 0; row < TILE; row++) __builtin_memcpy(target + row * next_row, &rows[row], sizeof(Line));
  }
};

// The offset of the row with a number, in elements, over all axes except the last two.
inline int64_t offset_of(int64_t number, int64_t axis_count, const Axes &axes) {
  int64_t offset = 0;
  for (int64_t axis = axis_count - 1; axis >= 0; axis--) {
    offset += number % axes.axis[axis].length * axes.axis[axis].stride;
    number /= axes.axis[axis].length;
  }
  return offset;
}

template <class Item>
void gather_items(const uint8_t *source, const Axes &axes, int64_t first, int64_t count, uint8_t *target) {
  constexpr int64_t BYTES = sizeof(Item);
  int64_t last = axes.count - 1;
  int64_t length = axes.axis[last].length, stride = axes.axis[last].stride * BYTES;
  int64_t row_count = last ? axes.axis[last - 1].length : 1, row_stride = last ? axes.axis[last - 1].stride * BYTES : 0;
  // Rows are far apart in memory: prefetch those of the next block, unless it is in the same row.
  int64_t ahead = length < BLOCK ? BLOCK / length * row_stride : 0;
  int64_t row = first / length, column = first % length;
  const uint8_t *rows = source + offset_of(row / row_count, last - 1, axes) * BYTES;
  row %= row_count;
  for (int64_t done = 0; done < count;) {
    const uint8_t *here = rows + row * row_stride;
    uint8_t *to = target + done * BYTES;
    bool tiled = (BYTES == 2 || BYTES == 4) && row_stride == BYTES && column == 0 && row_count - row >= TILE &&
                 count - done >= TILE * length;
    if (tiled) {
      int64_t at = 0;
      if constexpr (BYTES == 2 || BYTES == 4)
        for (; at + TILE <= length; at += TILE) {
          for (int i = 0; i < TILE; i++) __builtin_prefetch(here + (at + AHEAD + i) * stride);
          Tile<Item>::transpose(here + at * stride, stride, to + at * BYTES, length * BYTES);
        }
      for (; at < length; at++)
        for (int i = 0; i < TILE; i++)
          __builtin_memcpy(to + (i * length + at) * BYTES, here + at * stride + i * BYTES, BYTES);
      done += TILE * length;
      row += TILE;
    } else {
      here += column * stride;
      int64_t run = length - column < count - done ? length - column : count - done;
      if (stride == BYTES) {
        for (int64_t at = 0; ahead && at < run * BYTES; at += LINE) __builtin_prefetch(here + ahead + at);
        __builtin_memcpy(to, here, (size_t)(run * BYTES));
      } else {
        for (int64_t i = 0; i < run; i++) __builtin_memcpy(to + i * BYTES, here + i * stride, BYTES);
      }
      done += run;
      column = 0;
      row += 1;
    }
    if (row == row_count) {
      row = 0;
      rows = source + offset_of((first + done) / length / row_count, last - 1, axes) * BYTES;
    }
  }
}

// Copy `count` elements, starting with the `first` in C order.
inline void gather(const Elements &elements, const Axes &axes, int64_t first, int64_t count, uint8_t *target) {
  struct Pair {
    uint64_t words[2];
  };
  switch (item_bytes(elements.kind)) {
    case 1: return gather_items<uint8_t>(elements.address, axes, first, count, target);
    case 2: return gather_items<uint16_t>(elements.address, axes, first, count, target);
    case 4: return gather_items<uint32_t>(elements.address, axes, first, count, target);
    case 8: return gather_items<uint64_t>(elements.address, axes, first, count, target);
    default: return gather_items<Pair>(elements.address, axes, first, count, target);
  }
}

// The elements of a part of a tensor, a block at a time.
struct Source {
  const uint8_t *elements;  // contiguous elements of the part; null if they are strided, then the others are used
  const Elements *apart;
  const Axes *axes;
  int64_t first;
  uint8_t *scratch;  // for a block, which stays in the first-level cache

  // The maximum number of elements to read at once.
  int64_t most() const { return elements ? PART : BLOCK; }

  const uint8_t *at(int64_t position, int64_t count, int64_t bytes) const {
    if (elements) return elements + position * bytes;
    gather(*apart, *axes, first + position, count, scratch);
    return scratch;
  }
};

// Whether elements of neighbouring rows are adjacent, so that several rows should be written at once.
inline bool is_transposed(const Axes &axes) {
  return axes.count > 1 && axes.axis[axes.count - 2].stride == 1 && axes.axis[axes.count - 1].stride != 1;
}

}  // namespace
