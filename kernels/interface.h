// The interface between the parts of the extension: the layout of a row, the kinds of elements, the kernels of an
// instruction set. The numbers are those of `tensors/layout.py`; a test compares them.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum Kind : int64_t {
  FLOAT16, FLOAT32, FLOAT64,
  BOOL, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64,
  COMPLEX64, COMPLEX128,
  BFLOAT16,
  FLOAT8_E4M3FN, FLOAT8_E5M2,
  KINDS
};

static inline int64_t item_bytes(Kind kind) {
  switch (kind) {
    case BOOL: case INT8: case UINT8: case FLOAT8_E4M3FN: case FLOAT8_E5M2: return 1;
    case FLOAT16: case BFLOAT16: case INT16: case UINT16: return 2;
    case FLOAT64: case INT64: case UINT64: case COMPLEX64: return 8;
    case COMPLEX128: return 16;
    default: return 4;
  }
}

constexpr int64_t BLOCK = 1024;         // elements that are scanned while in the first-level cache
constexpr int64_t PART = 1 << 15;       // elements whose totals are computed separately, then merged
constexpr int64_t MOST_AXES = 6;        // of strided elements

struct Reals {
  double total, absolute_total, squared_deviation, minimum, maximum;
};

struct Counts {
  int64_t finite, nan, negative_infinite, positive_infinite, negative, positive;
  uint64_t hash;
};

struct Row {
  Reals reals;
  Counts counts;
};

struct Range {
  double low, high;  // both inclusive
};

struct Elements {
  Kind kind;
  const uint8_t *address;
  int64_t count;
  int64_t first_block;  // position in the tensor of the block that begins with the first element; below 0: no hash
};

struct Axes {
  int64_t count;  // 0: the elements are contiguous
  struct {
    int64_t length, stride;  // stride in elements
  } axis[MOST_AXES];
};

constexpr int64_t MOST_ITEM_BYTES = 16;
constexpr int64_t MOST_PARTS = 1 << 5;  // of a shared scan
constexpr int64_t SHARED_SCRATCH = PART * MOST_ITEM_BYTES;

// A scan by several threads. Each has a share of adjacent parts, distributed as frameworks distribute the elements of
// an operator, so that a thread reads what it has just written. A thread that is done helps the others.
struct SharedTask {
  Elements elements;
  Axes axes;
  int64_t taken[MOST_PARTS];  // number of parts of each share that were started
  Row rows[MOST_PARTS];       // one for each part
};

// A search for elements that are not finite, by several threads or by one.
struct SharedSearch {
  Elements elements;
  int64_t taken[MOST_PARTS];
  bool found;
};

struct Change {
  double total, squares, previous_total, maximum, required_rtol;
};

struct Kernels {
  const char *name;
  bool (*is_supported)();
  // Adds the elements to the totals; `counts` is followed by a count for each range.
  void (*scan)(const Elements &elements, Reals *reals, Counts *counts, const Range *ranges, int64_t range_count);
  // Scans parts until none is left, as the thread with a number; `scratch` has `SHARED_SCRATCH` bytes, and is only
  // needed if there are axes.
  void (*scan_shared)(SharedTask *task, int64_t thread, int64_t threads, uint8_t *scratch);
  // Adds the totals of parts, in their order.
  void (*add_rows)(const Row *rows, int64_t count, Reals *reals, Counts *counts);
  void (*compare)(Kind current_kind, const uint8_t *current, Kind previous_kind, const uint8_t *previous,
                  int64_t count, double atol, Change *change);
  void (*search_shared)(SharedSearch *search, int64_t thread, int64_t threads);
};
