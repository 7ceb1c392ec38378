// What the functions and types of the extension have in common: the chosen kernels, how arguments are read, and scans by
// threads of somebody else.
//
// Only the stable ABI of Python 3.10 is used, so that one file serves all later versions. Addresses are integers: who
// calls vouches for the memory behind them.
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <structmember.h>

#include "interface.h"

static const Kernels *chosen = nullptr;

// Elements up to which a kernel holds the interpreter lock: giving it up may cost 5 ms until it is given back.
static const int64_t HOLDING = 1 << 16, HOLDING_SEARCH = 1 << 21;

// Elements up to which a scan needs no help: it takes some 20 µs.
static const int64_t ALONE = 1 << 16;

// Read so many integers into `numbers`; on failure an exception is set.
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

// Free an object that the search for reference cycles knows.
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

// Threads of somebody else, as OpenMP has them: what calls a function in each of them, the number of the thread that
// asks, and how many there are.
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

// Write the totals of at most `MOST_PARTS` parts to a row, by a team if there is one.
static void scan_parts(const Team &team, const Elements &elements, const Axes &axes, Reals *reals, Counts *counts) {
  TeamTask task;
  task.team = team;
  task.shared.elements = elements;
  task.shared.axes = axes;
  int64_t parts = (elements.count + PART - 1) / PART;
  for (int64_t part = 0; part < parts; part++) task.shared.taken[part] = 0;
  clear(reals, counts);
  if (!parts) return;
  // A team scans a segment before another thread that was given the interpreter lock would give it back. Without one
  // several threads of ours may scan at the same time.
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

// Whether an element is NaN or infinite; of large tensors a team finds out, if there is one.
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
