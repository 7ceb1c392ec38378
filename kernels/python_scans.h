// Code shared by the functions and types of the extension: the chosen kernels, parsing of arguments, and scans by teams
// of threads.
//
// Only the stable ABI of Python 3.10 is used, so that one file works with all later versions. Addresses are integers;
// the caller guarantees that the memory is valid.
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <structmember.h>

#include "interface.h"

static const Kernels *chosen = nullptr;

// Number of elements up to which a kernel holds the GIL: reacquiring it may take 5 ms.
static const int64_t HOLDING = 1 << 16, HOLDING_SEARCH = 1 << 21;

// Number of elements up to which one thread scans: it takes about 20 µs.
static const int64_t ALONE = 1 << 16;

// Read `wanted` integers into `numbers`; on failure an exception is set.
static bool read_integers(PyObject *const *given, Py_ssize_t count, Py_ssize_t wanted, int64_t *numbers) {
  if (count != wanted) {
    PyErr_Format(PyExc_TypeError, "%zd arguments were given, %zd are needed", count, wanted);
    return false;
  }
  for (Py_ssize_t i = 0; i < wanted; i++) {
    numbers[i] = PyLong_AsLongLong(given[i]);
    if (numbers[i] == -1 && PyErr_Occurred()) return false;
  }
  return true;
}

// Free an object that the garbage collector tracks.
static void free_tracked(PyObject *self, inquiry clear) {
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  clear(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static bool is_kind(int64_t number) {
  if (number >= 0 && number < KINDS) return true;
  PyErr_Format(PyExc_ValueError, "there is no kind of elements with the number %lld", (long long)number);
  return false;
}

static void clear(Reals *reals, Counts *counts) {
  *reals = {0, 0, 0, __builtin_inf(), -__builtin_inf()};
  *counts = {};
}

// A team of threads with the interface of OpenMP: functions that call a function in each thread, and return the number
// of the calling thread and the number of threads.
struct Team {
  void (*parallel)(void (*function)(void *), void *argument, unsigned threads, unsigned flags);
  int (*thread)();
  int (*threads)();
};

struct TeamTask {
  SharedTask shared;
  Team team;
};

struct TeamSearch {
  SharedSearch shared;
  Team team;
};

static uint8_t *own_scratch(const SharedTask &task) {
  static thread_local uint8_t scratch[SHARED_SCRATCH];
  return task.axes.count ? scratch : nullptr;
}

static void scan_in_team(void *argument) {
  TeamTask *task = (TeamTask *)argument;
  int threads = task->team.threads(), thread = task->team.thread();
  chosen->scan_shared(&task->shared, thread, threads < 1 ? 1 : threads, own_scratch(task->shared));
}

static void search_in_team(void *argument) {
  TeamSearch *search = (TeamSearch *)argument;
  int threads = search->team.threads(), thread = search->team.thread();
  chosen->search_shared(&search->shared, thread, threads < 1 ? 1 : threads);
}

// Write the totals of at most `MOST_PARTS` parts to a row, with a team if there is one.
static void scan_parts(const Team &team, const Elements &elements, const Axes &axes, Reals *reals, Counts *counts) {
  TeamTask task;
  task.team = team;
  task.shared.elements = elements;
  task.shared.axes = axes;
  int64_t parts = (elements.count + PART - 1) / PART;
  for (int64_t part = 0; part < parts; part++) task.shared.taken[part] = 0;
  clear(reals, counts);
  if (!parts) return;
  // A team scans a segment faster than another thread would return the GIL. Without a team, releasing the GIL lets
  // several of our threads scan concurrently.
  if (team.parallel) {
    team.parallel(scan_in_team, &task, 0, 0);
  } else if (elements.count > HOLDING) {
    Py_BEGIN_ALLOW_THREADS
    chosen->scan_shared(&task.shared, 0, 1, own_scratch(task.shared));
    Py_END_ALLOW_THREADS
  } else {
    chosen->scan_shared(&task.shared, 0, 1, own_scratch(task.shared));
  }
  chosen->add_rows(task.shared.rows, parts, reals, counts);
}

static void search_by(TeamSearch &search) {
  if (search.team.parallel && search.shared.elements.count > ALONE)
    search.team.parallel(search_in_team, &search, 0, 0);
  else if (search.shared.elements.count > 0)
    chosen->search_shared(&search.shared, 0, 1);
}

// Whether an element is NaN or infinite; a team, if there is one, searches large tensors.
static bool find_non_finite(const Team &team, Kind kind, const uint8_t *address, int64_t count) {
  TeamSearch search;
  search.shared.elements = {kind, address, count, -1};
  search.shared.found = false;
  for (int64_t &taken : search.shared.taken) taken = 0;
  search.team = team;
  if (count > HOLDING_SEARCH) {
    Py_BEGIN_ALLOW_THREADS
    search_by(search);
    Py_END_ALLOW_THREADS
  } else {
    search_by(search);
  }
  return search.shared.found;
}

static Team team_at(const int64_t *address) {
  return {(decltype(Team::parallel))address[0], (int (*)())address[1], (int (*)())address[2]};
}

// Read length and stride of each axis.
static void read_axes(const int64_t *numbers, Py_ssize_t count, Axes *axes) {
  axes->count = count / 2;
  for (int64_t axis = 0; axis < axes->count; axis++) axes->axis[axis] = {numbers[2 * axis], numbers[2 * axis + 1]};
}
