// Scan many npy files in one call, without the GIL: for small tensors the calls from Python cost more than the scan.
//
// Only files that need no decision are scanned: headers as NumPy writes them, of a known type in this byte order, with
// all of their data. Every other file is left to the caller, whose reader knows all forms and names what is wrong.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "python_rows.h"

constexpr int64_t MOST_DIMENSIONS = 8;       // of the tensors that are scanned here
constexpr int64_t MOST_HEADER_BYTES = 10000;  // NumPy's own limit

// What is known of a file beside its totals; the memory is a row of int64.
struct ScannedFile {
  int64_t kind;  // -1: left to the caller
  int64_t dimension_count;
  int64_t shape[MOST_DIMENSIONS];
};

struct NpyHeader {
  Kind kind;
  int64_t offset, count;
};

// A position in the text of a header.
struct HeaderText {
  const char *at, *end;

  bool skip(const char *expected) {
    size_t length = __builtin_strlen(expected);
    if ((size_t)(end - at) < length || __builtin_memcmp(at, expected, length)) return false;
    at += length;
    return true;
  }

  // Read a number of at most 18 digits.
  bool read_number(int64_t *number) {
    const char *first = at;
    for (*number = 0; at < end && *at >= '0' && *at <= '9'; at++) {
      if (at - first == 18) return false;
      *number = *number * 10 + (*at - '0');
    }
    return at > first;
  }

  // Read the kind of elements, which is that of `nameless` if only their size is given, because NumPy cannot name it.
  bool read_kind(int64_t nameless, Kind *kind) {
    static const struct {
      const char *text;
      Kind kind;
    } KINDS_AT_REST[] = {
        {"<f4'", FLOAT32},   {"<f2'", FLOAT16},  {"<E2'", BFLOAT16}, {"<f8'", FLOAT64},   {"|b1'", BOOL},
        {"|i1'", INT8},      {"|u1'", UINT8},    {"<i2'", INT16},    {"<u2'", UINT16},    {"<i4'", INT32},
        {"<u4'", UINT32},    {"<i8'", INT64},    {"<u8'", UINT64},   {"<c8'", COMPLEX64}, {"<c16'", COMPLEX128},
        {"<f1'", FLOAT8_E5M2},
    };
    for (const auto &known : KINDS_AT_REST) {
      *kind = known.kind;
      if (skip(known.text)) return true;
    }
    if (nameless < 0) return false;
    *kind = (Kind)nameless;
    bool is_double_byte = item_bytes(*kind) == 2;
    return skip(is_double_byte ? "<V2'" : "<V1'") || skip(is_double_byte ? "|V2'" : "|V1'");
  }
};

// Read a header that starts a file of which `size` bytes are in memory; false if it needs a decision.
static bool read_npy_header(const uint8_t *start, int64_t size, int64_t nameless, NpyHeader *header, ScannedFile *file) {
  if (size < 12 || __builtin_memcmp(start, "\x93NUMPY", 6) || start[6] < 1 || start[6] > 3) return false;
  int64_t prefix = start[6] == 1 ? 10 : 12, length = start[8] | start[9] << 8;
  if (prefix == 12) length |= (int64_t)start[10] << 16 | (int64_t)start[11] << 24;
  if (length > MOST_HEADER_BYTES || prefix + length > size) return false;
  header->offset = prefix + length;
  HeaderText text = {(const char *)start + prefix, (const char *)start + header->offset};
  if (!text.skip("{'descr': '") || !text.read_kind(nameless, &header->kind)) return false;
  if (!text.skip(", 'fortran_order': False, 'shape': (")) return false;
  header->count = 1;
  file->dimension_count = 0;
  while (!text.skip(")")) {
    int64_t *number = file->shape + file->dimension_count;
    if (file->dimension_count++ == MOST_DIMENSIONS || !text.read_number(number)) return false;
    if (__builtin_mul_overflow(header->count, *number, &header->count)) return false;
    if (text.skip(",")) text.skip(" ");
    else if (text.at == text.end || *text.at != ')') return false;
  }
  text.skip(",");
  text.skip(" ");
  if (!text.skip("}")) return false;
  while (text.skip(" ") || text.skip("\n")) {}
  return text.at == text.end;
}

// Read a whole file of at most `most` bytes, and return its size; -1 if it is larger, no file, or cannot be read.
static int64_t read_whole(const char *path, uint8_t *buffer, int64_t most) {
  // Opening a pipe in place of a file must not block until it has a writer.
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return -1;
  struct stat status;
  int64_t size = -1, done = 0;
  if (!fstat(descriptor, &status) && S_ISREG(status.st_mode) && status.st_size <= most) size = status.st_size;
  while (done < size) {
    ssize_t count = pread(descriptor, buffer + done, (size_t)(size - done), done);
    if (count <= 0) size = -1;
    else done += count;
  }
  close(descriptor);
  return size;
}

struct FileScan {
  uint8_t *buffer;
  int64_t buffer_bytes;
  const Range *ranges;
  int64_t range_count;
};

// Write the totals of a file, with a count for each range after the counts, unless it is left to the caller.
static void scan_file(const FileScan &scan, const char *path, int64_t nameless, Reals *reals, Counts *counts,
                      ScannedFile *file) {
  NpyHeader header;
  int64_t size = read_whole(path, scan.buffer, scan.buffer_bytes);
  if (size < 0 || !read_npy_header(scan.buffer, size, nameless, &header, file)) return;
  int64_t bytes = item_bytes(header.kind);
  if (header.count > MOST_PARTS * PART || header.offset + header.count * bytes > size) return;
  // Some writers put float32 under a header for 16 bits.
  bool is_half = header.kind == FLOAT16 || header.kind == BFLOAT16;
  if (is_half && header.count && size - header.offset == 2 * header.count * bytes) return;
  Elements elements = {header.kind, scan.buffer + header.offset, header.count, 0};
  clear(reals, counts);
  for (int64_t range = 0; range < scan.range_count; range++) ((int64_t *)(counts + 1))[range] = 0;
  chosen->scan(elements, reals, counts, scan.ranges, scan.range_count);
  if (is_double(elements.kind) && is_out_of_range(*reals)) return;
  file->kind = header.kind;
}

// Scan files: their paths, each ended by a zero byte, their number, and the addresses that `native.Kernels` describes.
static PyObject *scan_files(PyObject *, PyObject *const *given, Py_ssize_t count) {
  int64_t number[9];
  char *path;
  Py_ssize_t length;
  if (count != 10) return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 10 are needed", count);
  if (PyBytes_AsStringAndSize(given[0], &path, &length) || !read_integers(given + 1, 9, 9, number)) return nullptr;
  int64_t path_count = 0;
  for (Py_ssize_t at = 0; at < length; at++) path_count += !path[at];
  if (path_count != number[0] || (length && path[length - 1]))
    return PyErr_Format(PyExc_ValueError, "%lld paths were given, %lld are needed", (long long)path_count,
                        (long long)number[0]);
  const int64_t *nameless = (const int64_t *)number[1];
  FileScan scan = {(uint8_t *)number[2], number[3], (const Range *)number[7], number[8]};
  ScannedFile *files = (ScannedFile *)number[4];
  Reals *reals = (Reals *)number[5];
  uint8_t *counts = (uint8_t *)number[6];
  int64_t counts_bytes = (int64_t)sizeof(Counts) + scan.range_count * 8;
  Py_BEGIN_ALLOW_THREADS
  for (int64_t index = 0; index < path_count; index++) {
    files[index].kind = -1;
    scan_file(scan, path, nameless[index], reals + index, (Counts *)(counts + index * counts_bytes), files + index);
    path += __builtin_strlen(path) + 1;
  }
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}
