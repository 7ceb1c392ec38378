// The extension module `tensight.tensors._kernels`: the kernels of the best instruction set that the processor has.
//
// Only the stable ABI of Python 3.10 is used, so that one file serves all later versions. Addresses are integers: who
// calls vouches for the memory behind them.
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

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
static const int64_t HOLDING = 1 << 16, HOLDING_SEARCH = 1 << 18;

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

static void scan_shared_by_address(SharedTask *task) { chosen->scan_shared(task); }

static PyObject *scan_shared(PyObject *, PyObject *task) {
  SharedTask *address = (SharedTask *)PyLong_AsLongLong(task);
  if (PyErr_Occurred()) return nullptr;
  Py_BEGIN_ALLOW_THREADS
  chosen->scan_shared(address);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject *put_together(PyObject *, PyObject *const *given, Py_ssize_t count) {
  int64_t number[3];
  if (!read_integers(given, count, 3, number)) return nullptr;
  const SharedTask *task = (const SharedTask *)number[0];
  Reals *reals = (Reals *)number[1];
  Counts *counts = (Counts *)number[2];
  clear(reals, counts);
  chosen->add_rows(task->rows, (task->elements.count + PART - 1) / PART, reals, counts);
  Py_RETURN_NONE;
}

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

static PyObject *has_non_finite(PyObject *, PyObject *const *given, Py_ssize_t count) {
  int64_t number[3];
  if (!read_integers(given, count, 3, number) || !is_kind(number[0])) return nullptr;
  bool found;
  if (number[2] > HOLDING_SEARCH) {
    Py_BEGIN_ALLOW_THREADS
    found = chosen->has_non_finite((Kind)number[0], (const uint8_t *)number[1], number[2]);
    Py_END_ALLOW_THREADS
  } else {
    found = chosen->has_non_finite((Kind)number[0], (const uint8_t *)number[1], number[2]);
  }
  return PyBool_FromLong(found);
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
    {"scan_shared", scan_shared, METH_O, nullptr},
    {"put_together", (PyCFunction)(void (*)(void))put_together, METH_FASTCALL, nullptr},
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
  PyObject *address = PyLong_FromVoidPtr((void *)scan_shared_by_address);
  if (!address) return -1;
  if (PyModule_AddObject(module, "SCAN_SHARED", address)) {
    Py_DECREF(address);
    return -1;
  }
  return 0;
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)set_up}, {0, nullptr}};
static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernels", nullptr, 0, METHODS, SLOTS, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&MODULE); }
