// The type `Kept`: the records of values that are kept by reference, and the common case of adding a value. Everything
// else, such as copies and eviction when memory is short, is in `agents/retention.py`.
#pragma once

#include "python_scans.h"

struct Kept {
  PyObject_HEAD
  PyObject *values;      // mapping of slot id to (tensor, version, size in bytes, whether it is a copy)
  PyObject *identities;  // dict of the id of a tensor to its slot id
  PyObject *copied;      // set of the slot ids whose values are copied
  long long bytes, budget;
};

static int kept_visit(PyObject *self, visitproc visit, void *arg) {
  Kept *kept = (Kept *)self;
  Py_VISIT(kept->values);
  Py_VISIT(kept->identities);
  Py_VISIT(kept->copied);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

static int kept_clear(PyObject *self) {
  Kept *kept = (Kept *)self;
  Py_CLEAR(kept->values);
  Py_CLEAR(kept->identities);
  Py_CLEAR(kept->copied);
  return 0;
}

static void kept_free(PyObject *self) { free_tracked(self, kept_clear); }

static int kept_init(PyObject *self, PyObject *arguments, PyObject *) {
  Kept *kept = (Kept *)self;
  PyObject *values, *identities, *copied;
  if (!PyArg_ParseTuple(arguments, "OOOL", &values, &identities, &copied, &kept->budget)) return -1;
  if (!PyDict_Check(values) || !PyDict_Check(identities) || !PySet_Check(copied)) {
    PyErr_SetString(PyExc_TypeError, "two dicts are needed, and a set");
    return -1;
  }
  Py_INCREF(values);
  Py_INCREF(identities);
  Py_INCREF(copied);
  kept_clear(self);
  kept->values = values;
  kept->identities = identities;
  kept->copied = copied;
  kept->bytes = 0;
  return 0;
}

// Whether there is no record of a slot or a tensor (by its identity), so that keeping it only adds one entry.
static bool is_new(const Kept *kept, PyObject *slot_id, PyObject *identity) {
  return PySequence_Contains(kept->values, slot_id) == 0 && PyDict_Contains(kept->identities, identity) == 0 &&
         PySet_Contains(kept->copied, slot_id) == 0;
}

// Keep the value of a slot without records; returns false without changes if the memory budget is exceeded.
static bool keep(Kept *kept, PyObject *slot_id, PyObject *identity, PyObject *version, PyObject *size,
                 PyObject *tensor) {
  int64_t bytes = PyLong_AsLongLong(size);
  if (bytes < 0 || kept->bytes > kept->budget - bytes) return false;
  PyObject *value = PyTuple_Pack(4, tensor, version, size, Py_False);
  bool is_kept = value && !PyObject_SetItem(kept->values, slot_id, value) &&
                 !PyDict_SetItem(kept->identities, identity, slot_id);
  Py_XDECREF(value);
  if (is_kept) kept->bytes += bytes;
  return is_kept;
}

static PyObject *kept_begin(PyObject *self, PyObject *values) {
  if (!PyDict_Check(values)) return PyErr_Format(PyExc_TypeError, "a dict is needed");
  Kept *kept = (Kept *)self;
  PyObject *before = kept->values;
  Py_INCREF(values);
  kept->values = values;
  Py_XDECREF(before);
  PyDict_Clear(kept->identities);
  Py_RETURN_NONE;
}

static PyMethodDef KEPT_METHODS[] = {
    {"begin", kept_begin, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static PyMemberDef KEPT_MEMBERS[] = {
    {"bytes", T_LONGLONG, offsetof(Kept, bytes), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

static PyType_Slot KEPT_SLOTS[] = {
    {Py_tp_init, (void *)kept_init},       {Py_tp_dealloc, (void *)kept_free},    {Py_tp_methods, KEPT_METHODS},
    {Py_tp_members, KEPT_MEMBERS},         {Py_tp_new, (void *)PyType_GenericNew}, {Py_tp_traverse, (void *)kept_visit},
    {Py_tp_clear, (void *)kept_clear},     {0, nullptr},
};

// Created with the module.
static PyTypeObject *kept_type = nullptr;

static PyType_Spec KEPT = {"tensight.tensors._kernels.Kept", sizeof(Kept), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           KEPT_SLOTS};
