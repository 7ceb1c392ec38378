// The extension module `tensight.tensors._kernels`: the kernels of the best instruction set that the processor has.
//
// Only the stable ABI of Python 3.10 is used, so that one file serves all later versions. Addresses are integers: who
// calls vouches for the memory behind them.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <structmember.h>

#include "interface.h"

#define KERNELS_OF(name) KERNELS_##name
#define DECLARE(name) extern const Kernels KERNELS_OF(name);
#define ADDRESS(name) &KERNELS_OF(name),
INSTRUCTION_SETS(DECLARE)

// The best last.
static const Kernels *const BUILT[] = {INSTRUCTION_SETS(ADDRESS)};
static const int BUILT_COUNT = sizeof BUILT / sizeof BUILT[0];

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

static bool is_kind(int64_t number) {
  if (number >= 0 && number < KINDS) return true;
  PyErr_Format(PyExc_ValueError, "there is no kind of elements with the number %lld", (long long)number);
  return false;
}

static void clear(Reals *reals, Counts *counts) {
  *reals = {0, 0, 0, __builtin_inf(), -__builtin_inf()};
  *counts = {};
}

static PyObject *scan(PyObject *, PyObject *const *given, Py_ssize_t count) {
  int64_t number[6];
  if (!read_integers(given, count, 6, number) || !is_kind(number[0])) return nullptr;
  Elements elements = {(Kind)number[0], (const uint8_t *)number[1], number[2], number[3]};
  Reals *reals = (Reals *)number[4];
  Counts *counts = (Counts *)number[5];
  clear(reals, counts);
  if (elements.count > HOLDING) {
    Py_BEGIN_ALLOW_THREADS
    chosen->scan(elements, reals, counts, nullptr, 0);
    Py_END_ALLOW_THREADS
  } else {
    chosen->scan(elements, reals, counts, nullptr, 0);
  }
  Py_RETURN_NONE;
}

static PyObject *scan_ranges(PyObject *, PyObject *const *given, Py_ssize_t count) {
  int64_t number[8];
  if (!read_integers(given, count, 8, number) || !is_kind(number[0])) return nullptr;
  Elements elements = {(Kind)number[0], (const uint8_t *)number[1], number[2], number[3]};
  Reals *reals = (Reals *)number[4];
  Counts *counts = (Counts *)number[5];
  const Range *ranges = (const Range *)number[6];
  clear(reals, counts);
  for (int64_t range = 0; range < number[7]; range++) ((int64_t *)(counts + 1))[range] = 0;
  Py_BEGIN_ALLOW_THREADS
  chosen->scan(elements, reals, counts, ranges, number[7]);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
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

static Team team_at(const int64_t *address) {
  return {(decltype(Team::parallel))address[0], (int (*)())address[1], (int (*)())address[2]};
}

// Read length and stride of each axis.
static void read_axes(const int64_t *numbers, Py_ssize_t count, Axes *axes) {
  axes->count = count / 2;
  for (int64_t axis = 0; axis < axes->count; axis++) axes->axis[axis] = {numbers[2 * axis], numbers[2 * axis + 1]};
}

static PyObject *scan_shared(PyObject *, PyObject *const *given, Py_ssize_t count) {
  constexpr Py_ssize_t BEFORE_AXES = 9;
  int64_t number[BEFORE_AXES + 2 * MOST_AXES];
  Axes axes;
  if (count < BEFORE_AXES || count > BEFORE_AXES + 2 * MOST_AXES || (count - BEFORE_AXES) % 2)
    return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 9 are needed, and 2 for each axis", count);
  if (!read_integers(given, count, count, number) || !is_kind(number[3])) return nullptr;
  read_axes(number + BEFORE_AXES, count - BEFORE_AXES, &axes);
  if (number[5] < 0 || number[5] > MOST_PARTS * PART)
    return PyErr_Format(PyExc_ValueError, "%lld elements cannot be shared out", (long long)number[5]);
  Elements elements = {(Kind)number[3], (const uint8_t *)number[4], number[5], number[6]};
  scan_parts(team_at(number), elements, axes, (Reals *)number[7], (Counts *)number[8]);
  Py_RETURN_NONE;
}

// ---- rows: columns of totals, and what belongs to each row, in memory that belongs to Python

struct Rows {
  PyObject_HEAD
  Reals *reals;
  Counts *counts;
  int64_t *iterations, *codes, *exponents;  // of each row
  PyObject *shapes;                         // a list
  PyObject *types, *kinds;                  // of the tensors that are read where they lie; null if there are none
  long long ready, iteration;
  Team team;
};

// Squares of doubles beyond these leave the range of doubles.
static constexpr double LARGE = 0x1p480, SMALL = 0x1p-450;

static bool is_double(Kind kind) {
  switch (kind) {
    case FLOAT64: case INT64: case UINT64: case COMPLEX64: case COMPLEX128: return true;
    default: return false;
  }
}

static bool is_out_of_range(const Reals &reals) {
  double low = __builtin_fabs(reals.minimum), high = __builtin_fabs(reals.maximum);
  double largest = low > high ? low : high;
  return largest < __builtin_inf() && largest > 0 && (largest < SMALL || largest > LARGE);
}

static int rows_init(PyObject *self, PyObject *arguments, PyObject *) {
  Rows *rows = (Rows *)self;
  long long address[5];
  PyObject *shapes;
  if (!PyArg_ParseTuple(arguments, "LLLLLO", address, address + 1, address + 2, address + 3, address + 4, &shapes))
    return -1;
  if (!PyList_Check(shapes)) {
    PyErr_SetString(PyExc_TypeError, "shapes are a list");
    return -1;
  }
  rows->reals = (Reals *)address[0];
  rows->counts = (Counts *)address[1];
  rows->iterations = (int64_t *)address[2];
  rows->codes = (int64_t *)address[3];
  rows->exponents = (int64_t *)address[4];
  Py_INCREF(shapes);
  Py_XDECREF(rows->shapes);
  rows->shapes = shapes;
  Py_CLEAR(rows->types);
  Py_CLEAR(rows->kinds);
  rows->ready = rows->iteration = 0;
  rows->team = {};
  return 0;
}

static void rows_free(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  Py_XDECREF(((Rows *)self)->shapes);
  Py_XDECREF(((Rows *)self)->types);
  Py_XDECREF(((Rows *)self)->kinds);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

static PyObject *rows_set_team(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  int64_t number[3];
  if (!read_integers(given, count, 3, number)) return nullptr;
  ((Rows *)self)->team = team_at(number);
  Py_RETURN_NONE;
}

static PyObject *rows_set_tensors(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  Rows *rows = (Rows *)self;
  if (count != 2 || !PyTuple_Check(given[0]) || !PyDict_Check(given[1]))
    return PyErr_Format(PyExc_TypeError, "a tuple of types is needed, and a dict of kinds by dtype");
  Py_INCREF(given[0]);
  Py_INCREF(given[1]);
  Py_XDECREF(rows->types);
  Py_XDECREF(rows->kinds);
  rows->types = given[0];
  rows->kinds = given[1];
  Py_RETURN_NONE;
}

// 1 if the row of a place was written, 0 where more than a scan is needed, -1 after an exception.
static int write_row(Rows *rows, int64_t place, const Elements &elements, const Axes &axes, PyObject *shape) {
  if (place < 0 || place >= rows->ready || elements.count < 0 || elements.count > MOST_PARTS * PART) return 0;
  Reals *reals = rows->reals + place;
  Counts *counts = rows->counts + place;
  if (axes.count || elements.count > ALONE) {
    static const Team NOBODY = {};
    scan_parts(elements.count > ALONE ? rows->team : NOBODY, elements, axes, reals, counts);
  } else {
    clear(reals, counts);
    chosen->scan(elements, reals, counts, nullptr, 0);
  }
  if (is_double(elements.kind) && is_out_of_range(*reals)) return 0;
  Py_INCREF(shape);
  if (PyList_SetItem(rows->shapes, place, shape)) return -1;
  rows->codes[place] = elements.kind;
  rows->exponents[place] = 0;
  rows->iterations[place] = rows->iteration;
  return 1;
}

static PyObject *rows_write(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  constexpr Py_ssize_t BEFORE_AXES = 6;
  int64_t number[5], strides[2 * MOST_AXES];
  Axes axes;
  if (count < BEFORE_AXES || (count - BEFORE_AXES) % 2)
    return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 6 are needed, and 2 for each axis", count);
  if (count > BEFORE_AXES + 2 * MOST_AXES) Py_RETURN_FALSE;
  if (!read_integers(given, 5, 5, number) || !is_kind(number[1])) return nullptr;
  if (!read_integers(given + BEFORE_AXES, count - BEFORE_AXES, count - BEFORE_AXES, strides)) return nullptr;
  read_axes(strides, count - BEFORE_AXES, &axes);
  Elements elements = {(Kind)number[1], (const uint8_t *)number[2], number[3], number[4]};
  int written = write_row((Rows *)self, number[0], elements, axes, given[5]);
  return written < 0 ? nullptr : PyBool_FromLong(written);
}

// Names of what a tensor is asked for, as PyTorch's answers.
static struct {
  PyObject *is_cpu, *is_contiguous, *is_neg, *dtype, *data_ptr, *numel, *shape;
} names;

static bool make_names() {
  names = {
      PyUnicode_InternFromString("is_cpu"),   PyUnicode_InternFromString("is_contiguous"),
      PyUnicode_InternFromString("is_neg"),   PyUnicode_InternFromString("dtype"),
      PyUnicode_InternFromString("data_ptr"), PyUnicode_InternFromString("numel"),
      PyUnicode_InternFromString("shape"),
  };
  return names.is_cpu && names.is_contiguous && names.is_neg && names.dtype && names.data_ptr && names.numel &&
         names.shape;
}

// Whether an object, which is given away, is True or False as it should be.
static bool is_just(PyObject *answer, PyObject *wanted) {
  Py_XDECREF(answer);  // both truth values outlive this
  return answer == wanted;
}

static bool is_one_of(PyTypeObject *type, PyObject *types) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(types); i++)
    if ((PyObject *)type == PyTuple_GetItem(types, i)) return true;
  return false;
}

// Read an integer that is given away; -1 where there is none.
static int64_t integer_of(PyObject *number) {
  if (!number) return -1;
  int64_t found = PyLong_AsLongLong(number);
  Py_DECREF(number);
  return found;
}

// Whether the row of a place was written from a tensor: one of PyTorch's own, whose elements lie one after the other in
// this process; false for every other one.
static PyObject *rows_write_tensor(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  Rows *rows = (Rows *)self;
  int64_t number[2];
  if (count != 3) return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 3 are needed", count);
  if (!read_integers(given, 2, 2, number)) return nullptr;
  PyObject *tensor = given[2];
  if (!rows->types || !is_one_of(Py_TYPE(tensor), rows->types)) Py_RETURN_FALSE;
  int written = 0;
  if (is_just(PyObject_GetAttr(tensor, names.is_cpu), Py_True) &&
      is_just(PyObject_CallMethodObjArgs(tensor, names.is_contiguous, nullptr), Py_True) &&
      is_just(PyObject_CallMethodObjArgs(tensor, names.is_neg, nullptr), Py_False)) {
    PyObject *dtype = PyObject_GetAttr(tensor, names.dtype);
    PyObject *kind = dtype ? PyDict_GetItemWithError(rows->kinds, dtype) : nullptr;
    Py_XDECREF(dtype);
    int64_t code = kind ? PyLong_AsLongLong(kind) : -1;
    int64_t address = code < 0 ? -1 : integer_of(PyObject_CallMethodObjArgs(tensor, names.data_ptr, nullptr));
    if (code >= 0 && code < KINDS && address != 0 && !PyErr_Occurred()) {
      int64_t elements = integer_of(PyObject_CallMethodObjArgs(tensor, names.numel, nullptr));
      PyObject *shape = PyErr_Occurred() ? nullptr : PyObject_GetAttr(tensor, names.shape);
      static const Axes NONE = {};
      Elements found = {(Kind)code, (const uint8_t *)address, elements, number[1]};
      if (shape) written = write_row(rows, number[0], found, NONE, shape);
      Py_XDECREF(shape);
    }
  }
  if (PyErr_Occurred()) {
    // Sparse, nested and wrapped tensors have no such thing.
    PyErr_Clear();
    Py_RETURN_FALSE;
  }
  return PyBool_FromLong(written > 0);
}

// Whether the row of a place was written to that of another one, with another shape; false where there is no such row.
static PyObject *rows_copy(PyObject *self, PyObject *const *given, Py_ssize_t count) {
  Rows *rows = (Rows *)self;
  int64_t number[2];
  if (count != 3) return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 3 are needed", count);
  if (!read_integers(given, 2, 2, number)) return nullptr;
  int64_t source = number[0], target = number[1];
  if (source < 0 || target < 0 || source >= rows->ready || target >= rows->ready) Py_RETURN_FALSE;
  rows->reals[target] = rows->reals[source];
  rows->counts[target] = rows->counts[source];
  PyObject *shape = given[2] == Py_None ? PyList_GetItem(rows->shapes, source) : given[2];
  if (!shape) return nullptr;
  Py_INCREF(shape);
  if (PyList_SetItem(rows->shapes, target, shape)) return nullptr;
  rows->codes[target] = rows->codes[source];
  rows->exponents[target] = rows->exponents[source];
  rows->iterations[target] = rows->iteration;
  Py_RETURN_TRUE;
}

static PyMethodDef ROWS_METHODS[] = {
    {"write", (PyCFunction)(void (*)(void))rows_write, METH_FASTCALL, nullptr},
    {"write_tensor", (PyCFunction)(void (*)(void))rows_write_tensor, METH_FASTCALL, nullptr},
    {"set_tensors", (PyCFunction)(void (*)(void))rows_set_tensors, METH_FASTCALL, nullptr},
    {"copy", (PyCFunction)(void (*)(void))rows_copy, METH_FASTCALL, nullptr},
    {"set_team", (PyCFunction)(void (*)(void))rows_set_team, METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static PyMemberDef ROWS_MEMBERS[] = {
    {"ready", T_LONGLONG, offsetof(Rows, ready), 0, nullptr},
    {"iteration", T_LONGLONG, offsetof(Rows, iteration), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

static PyType_Slot ROWS_SLOTS[] = {
    {Py_tp_init, (void *)rows_init}, {Py_tp_dealloc, (void *)rows_free}, {Py_tp_methods, ROWS_METHODS},
    {Py_tp_members, ROWS_MEMBERS},   {Py_tp_new, (void *)PyType_GenericNew}, {0, nullptr},
};

static PyType_Spec ROWS = {"tensight.tensors._kernels.Rows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT, ROWS_SLOTS};

static PyObject *compare(PyObject *, PyObject *const *given, Py_ssize_t count) {
  if (count != 7) return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 7 are needed", count);
  int64_t number[6];
  if (!read_integers(given, 6, 6, number) || !is_kind(number[0]) || !is_kind(number[2])) return nullptr;
  double atol = PyFloat_AsDouble(given[6]);
  if (PyErr_Occurred()) return nullptr;
  Change *change = (Change *)number[5];
  *change = {};
  Py_BEGIN_ALLOW_THREADS
  chosen->compare((Kind)number[0], (const uint8_t *)number[1], (Kind)number[2], (const uint8_t *)number[3], number[4],
                  atol, change);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static void search_by(TeamSearch &search) {
  if (search.team.parallel && search.shared.elements.count > ALONE)
    search.team.parallel(search_in_team, &search, 0, 0);
  else if (search.shared.elements.count > 0)
    chosen->search_shared(&search.shared, 0, 1);
}

static PyObject *has_non_finite(PyObject *, PyObject *const *given, Py_ssize_t count) {
  int64_t number[6];
  if (!read_integers(given, count, 6, number) || !is_kind(number[0])) return nullptr;
  TeamSearch search;
  search.shared.elements = {(Kind)number[0], (const uint8_t *)number[1], number[2], -1};
  search.shared.found = false;
  for (int64_t &taken : search.shared.taken) taken = 0;
  search.team = team_at(number + 3);
  if (number[2] > HOLDING_SEARCH) {
    Py_BEGIN_ALLOW_THREADS
    search_by(search);
    Py_END_ALLOW_THREADS
  } else {
    search_by(search);
  }
  return PyBool_FromLong(search.shared.found);
}

static PyObject *instruction_sets(PyObject *, PyObject *) {
  PyObject *names = PyList_New(0);
  if (!names) return nullptr;
  for (int i = 0; i < BUILT_COUNT; i++) {
    if (!BUILT[i]->is_supported()) continue;
    PyObject *name = PyUnicode_FromString(BUILT[i]->name);
    if (!name || PyList_Append(names, name)) return nullptr;
    Py_DECREF(name);
  }
  return names;
}

static PyObject *choose(PyObject *, PyObject *wanted) {
  for (int i = BUILT_COUNT - 1; i >= 0; i--) {
    if (!BUILT[i]->is_supported()) continue;
    if (wanted == Py_None || PyUnicode_CompareWithASCIIString(wanted, BUILT[i]->name) == 0) {
      chosen = BUILT[i];
      return PyUnicode_FromString(chosen->name);
    }
  }
  return PyErr_Format(PyExc_ValueError, "this processor, or this build, has no kernels for %S", wanted);
}

static PyMethodDef METHODS[] = {
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL, nullptr},
    {"scan_ranges", (PyCFunction)(void (*)(void))scan_ranges, METH_FASTCALL, nullptr},
    {"scan_shared", (PyCFunction)(void (*)(void))scan_shared, METH_FASTCALL, nullptr},
    {"compare", (PyCFunction)(void (*)(void))compare, METH_FASTCALL, nullptr},
    {"has_non_finite", (PyCFunction)(void (*)(void))has_non_finite, METH_FASTCALL, nullptr},
    {"instruction_sets", instruction_sets, METH_NOARGS, nullptr},
    {"choose", choose, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static int set_up(PyObject *module) {
  for (int i = 0; i < BUILT_COUNT; i++)
    if (BUILT[i]->is_supported()) chosen = BUILT[i];
  if (!chosen) {
    PyErr_SetString(PyExc_ImportError, "this processor lacks the instructions of every kernel in this build");
    return -1;
  }
  PyObject *rows = make_names() ? PyType_FromSpec(&ROWS) : nullptr;
  if (!rows) return -1;
  if (PyModule_AddObject(module, "Rows", rows)) {
    Py_DECREF(rows);
    return -1;
  }
  return 0;
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)set_up}, {0, nullptr}};
static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernels", nullptr, 0, METHODS, SLOTS, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&MODULE); }
