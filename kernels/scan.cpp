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

// Set a row to the totals of at most `PART` elements; `block` is the number of the first block, below 0: no hash.
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

// Call a function with the number of each part that a thread processes; see `SharedTask`.
template <class Function>
void take_parts(int64_t *taken, int64_t parts, int64_t thread, int64_t threads, Function function) {
  int64_t size = (parts + threads - 1) / threads, shares = (parts + size - 1) / size;
  for (int64_t turn = 0; turn < shares; turn++) {
    int64_t share = (thread + turn) % shares, begin = share * size, end = smaller(begin + size, parts);
    for (;;) {
      int64_t part = begin + __atomic_fetch_add(&taken[share], 1, __ATOMIC_RELAXED);
      if (part >= end) break;
      function(part);
    }
  }
}

void scan_shared(SharedTask *task, int64_t thread, int64_t threads, uint8_t *scratch) {
  const Elements &elements = task->elements;
  int64_t parts = (elements.count + PART - 1) / PART, bytes = item_bytes(elements.kind);
  take_parts(task->taken, parts, thread, threads, [=](int64_t part) {
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
  });
}

void add_rows(const Row *rows, int64_t count, Reals *reals, Counts *counts) {
  for (int64_t part = 0; part < count; part++) add_row(rows[part], *reals, *counts);
}

// Whether the bits of a number without the sign, as an integer, are at least those of infinity or the first NaN.
template <class Bits>
bool reaches(const uint8_t *address, int64_t count, Bits magnitude, Bits infinity, const bool *is_over) {
  typedef VECTOR(Bits, WIDTH) Vector;
  constexpr int64_t ITEMS = LINE / sizeof(Bits), AT_ONCE = 4096;  // number of elements between checks
  for (int64_t start = 0; start < count && !__atomic_load_n(is_over, __ATOMIC_RELAXED); start += AT_ONCE) {
    int64_t end = smaller(start + AT_ONCE, count), lines = (end - start) / ITEMS;
    const uint8_t *here = address + start * (int64_t)sizeof(Bits);
    Vector largest = {};
    for (int64_t line = 0; line < lines; line++, here += LINE) {
      __builtin_prefetch(here + AHEAD_BYTES);
#pragma GCC unroll 4
      for (int at = 0; at < LINE; at += WIDTH) {
        Vector bits = load<Vector>(here + at) & magnitude;
        largest = bits > largest ? bits : largest;
      }
    }
    Bits most = 0;
    for (int lane = 0; lane < WIDTH / (int)sizeof(Bits); lane++) most = largest[lane] > most ? largest[lane] : most;
    for (int64_t i = start + lines * ITEMS; i < end; i++, here += sizeof(Bits)) {
      Bits bits = read<Bits>(here) & magnitude;
      most = bits > most ? bits : most;
    }
    if (most >= infinity) return true;
  }
  return false;
}

bool has_non_finite(Kind kind, const uint8_t *address, int64_t count, const bool *is_over) {
  switch (kind) {
    case FLOAT16: return reaches<int16_t>(address, count, 0x7FFF, 0x7C00, is_over);
    case BFLOAT16: return reaches<int16_t>(address, count, 0x7FFF, 0x7F80, is_over);
    case FLOAT8_E4M3FN: return reaches<int8_t>(address, count, 0x7F, 0x7F, is_over);
    case FLOAT8_E5M2: return reaches<int8_t>(address, count, 0x7F, 0x7C, is_over);
    case FLOAT32: return reaches<int32_t>(address, count, 0x7FFFFFFF, 0x7F800000, is_over);
    case COMPLEX64: return reaches<int32_t>(address, 2 * count, 0x7FFFFFFF, 0x7F800000, is_over);
    case FLOAT64: return reaches<int64_t>(address, count, INT64_MAX, 0x7FF0000000000000, is_over);
    case COMPLEX128: return reaches<int64_t>(address, 2 * count, INT64_MAX, 0x7FF0000000000000, is_over);
    default: return false;
  }
}

void search_shared(SharedSearch *search, int64_t thread, int64_t threads) {
  const Elements &elements = search->elements;
  int64_t most = (elements.count + MOST_PARTS - 1) / MOST_PARTS, size = most > PART ? most : PART;
  take_parts(search->taken, (elements.count + size - 1) / size, thread, threads, [=](int64_t part) {
    int64_t first = part * size, count = smaller(size, elements.count - first);
    const uint8_t *here = elements.address + first * item_bytes(elements.kind);
    if (has_non_finite(elements.kind, here, count, &search->found))
      __atomic_store_n(&search->found, true, __ATOMIC_RELAXED);
  });
}

}  // namespace

#define TEXT(name) #name
#define NAME_OF(name) TEXT(name)
#define JOINED(one, other) one##other
#define KERNELS_OF(name) JOINED(KERNELS_, name)

extern const Kernels KERNELS_OF(INSTRUCTION_SET);
const Kernels KERNELS_OF(INSTRUCTION_SET) = {
    NAME_OF(INSTRUCTION_SET), is_supported, scan, scan_shared, add_rows, compare, search_shared,
};
