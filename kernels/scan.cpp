// The kernels of one instruction set; compiled once for each, with INSTRUCTION_SET as its name (see build_kernels.py).
#include "changes.h"
#include "elements.h"
#include "gather.h"
#include "interface.h"
#include "moments.h"
#include "processor.h"
#include "rows.h"

namespace {

inline int64_t smaller(int64_t one, int64_t other) { return one < other ? one : other; }

void count_ranges(Kind kind, const uint8_t *block, int64_t count, const Range *ranges, int64_t range_count,
                  int64_t *found) {
  double values[BLOCK];
  widen_block(kind, block, count, values);
  for (int64_t range = 0; range < range_count; range++) {
    double low = ranges[range].low, high = ranges[range].high;
    int64_t inside = 0;
    for (int64_t i = 0; i < count; i++) inside += (values[i] >= low) & (values[i] <= high);
    found[range] += inside;
  }
}

// Make a row the totals of at most `PART` elements, whose first block has a number; below 0 there is no hash.
void scan_part(Kind kind, const Source &source, int64_t count, int64_t block, Row &row) {
  clear(row);
  if (block < 0)
    scan_kind<false>(kind, source, count, 0, row);
  else
    scan_kind<true>(kind, source, count, block, row);
}

void scan(const Elements &elements, Reals *reals, Counts *counts, const Range *ranges, int64_t range_count) {
  int64_t bytes = item_bytes(elements.kind), block = elements.first_block;
  Row row;
  for (int64_t first = 0; first < elements.count; first += PART) {
    int64_t count = smaller(PART, elements.count - first);
    const uint8_t *here = elements.address + first * bytes;
    scan_part(elements.kind, {here, nullptr, nullptr, 0, nullptr}, count, block < 0 ? -1 : block + first / BLOCK, row);
    add_row(row, *reals, *counts);
    for (int64_t done = 0; range_count && done < count; done += BLOCK)
      count_ranges(elements.kind, here + done * bytes, smaller(BLOCK, count - done), ranges, range_count,
                   (int64_t *)(counts + 1));
  }
}

void scan_shared(SharedTask *task) {
  const Elements &elements = task->elements;
  int64_t parts = (elements.count + PART - 1) / PART, bytes = item_bytes(elements.kind);
  int64_t part = __atomic_fetch_add(&task->next_part, 1, __ATOMIC_RELAXED);
  if (part >= parts) return;
  uint8_t *scratch = task->scratch + __atomic_fetch_add(&task->next_thread, 1, __ATOMIC_RELAXED) * SHARED_SCRATCH;
  for (; part < parts; part = __atomic_fetch_add(&task->next_part, 1, __ATOMIC_RELAXED)) {
    int64_t first = part * PART, count = smaller(PART, elements.count - first);
    int64_t block = elements.first_block < 0 ? -1 : elements.first_block + first / BLOCK;
    Source source = {elements.address + first * bytes, nullptr, nullptr, 0, scratch};
    if (task->axes.count && is_transposed(task->axes)) {
      gather(elements, task->axes, first, count, scratch);
      source.elements = scratch;
    } else if (task->axes.count) {
      source = {nullptr, &elements, &task->axes, first, scratch};
    }
    scan_part(elements.kind, source, count, block, task->rows[part]);
  }
}

void add_rows(const Row *rows, int64_t count, Reals *reals, Counts *counts) {
  for (int64_t part = 0; part < count; part++) add_row(rows[part], *reals, *counts);
}

template <class Bits> bool reaches(const uint8_t *address, int64_t count, Bits magnitude, Bits infinity) {
  constexpr int64_t AT_ONCE = 4096;  // elements after which it is looked at what was found
  for (int64_t start = 0; start < count; start += AT_ONCE) {
    Bits largest = 0;
    for (int64_t i = start, end = smaller(start + AT_ONCE, count); i < end; i++) {
      Bits bits = read<Bits>(address + i * (int64_t)sizeof(Bits)) & magnitude;
      largest = bits > largest ? bits : largest;
    }
    if (largest >= infinity) return true;
  }
  return false;
}

bool has_non_finite(Kind kind, const uint8_t *address, int64_t count) {
  switch (kind) {
    case FLOAT16: return reaches<int16_t>(address, count, 0x7FFF, 0x7C00);
    case BFLOAT16: return reaches<int16_t>(address, count, 0x7FFF, 0x7F80);
    case FLOAT32: return reaches<int32_t>(address, count, 0x7FFFFFFF, 0x7F800000);
    case COMPLEX64: return reaches<int32_t>(address, 2 * count, 0x7FFFFFFF, 0x7F800000);
    case FLOAT64: return reaches<int64_t>(address, count, INT64_MAX, 0x7FF0000000000000);
    case COMPLEX128: return reaches<int64_t>(address, 2 * count, INT64_MAX, 0x7FF0000000000000);
    default: return false;
  }
}

}  // namespace

#define TEXT(name) #name
#define NAME_OF(name) TEXT(name)
#define JOINED(one, other) one##other
#define KERNELS_OF(name) JOINED(KERNELS_, name)

extern const Kernels KERNELS_OF(INSTRUCTION_SET);
const Kernels KERNELS_OF(INSTRUCTION_SET) = {
    NAME_OF(INSTRUCTION_SET), is_supported, scan, scan_shared, add_rows, compare, has_non_finite,
};
