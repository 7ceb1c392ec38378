import { expect, test } from 'vitest'
import type { SourceFile } from '~/api/types'
import { originLines, ownFrame, sourceRows, type SourceShape } from './lines'

const net: SourceFile = {
  file: '/home/me/net.py',
  is_library: false,
  has_text: true,
  lines: [
    { line: 14, end_line: null, code: 'return self.relu(x)', has_substack: false, nodes: 2 },
    { line: 140, end_line: null, code: 'loss.backward()', has_substack: false, nodes: 9 },
  ],
}
const library: SourceFile = { ...net, file: '/x/site-packages/nn.py', is_library: true }

const nothing: SourceShape = {
  files: [net, library],
  turned: new Set(),
  isSearch: false,
  openLines: new Set(),
  nodes: new Map(),
  hits: new Map(),
  origins: new Map(),
}

const keys = (shape: Partial<SourceShape>) =>
  sourceRows({ ...nothing, ...shape })
    .loadedRows()
    .map((row) => row.key)

test('files of libraries are closed until they are opened or match a search', () => {
  const lines = ['/home/me/net.py', '/home/me/net.py:14', '/home/me/net.py:140']
  const below = ['/x/site-packages/nn.py:14', '/x/site-packages/nn.py:140']
  expect(keys({})).toEqual([...lines, library.file])
  expect(keys({ turned: new Set([library.file]) })).toEqual([...lines, library.file, ...below])
  expect(keys({ isSearch: true })).toEqual([...lines, library.file, ...below])
  expect(keys({ turned: new Set([net.file]) })).toEqual([net.file, library.file])
})

test('an open line lists its nodes, and says how many more there are', () => {
  const name = '/home/me/net.py:14'
  const entry = {
    path: 'a/Relu',
    label: 'Relu',
    kind: 'operator' as const,
    type: 'Relu',
    roles: [],
    children: 0,
  }
  const node = {
    rank: 0,
    graph: 'g',
    entry: { ...entry, nodes: 1, dynamic_shape: false, graph: 'g', graphs: [], apart: false, hits: 0 },
  }
  const page = { total: 3, offset: 0, nodes: [node] }
  const waiting = sourceRows({ ...nothing, openLines: new Set([name]) })
  expect(waiting.at(2)).toMatchObject({ kind: 'waiting', parent: 1, depth: 2 })
  const there = sourceRows({ ...nothing, openLines: new Set([name]), nodes: new Map([[name, { page }]]) })
  expect(there.at(2)).toMatchObject({ kind: 'node', node, nth: 1, siblings: 2 })
  expect(there.at(3)).toMatchObject({ kind: 'more', rest: 2, nth: 2 })
})

test('the hits of a file are the sum over its lines', () => {
  const [file, first, second] = sourceRows({
    ...nothing,
    hits: new Map([['/home/me/net.py:140', 3]]),
  }).loadedRows()
  expect([file, first, second].map((row) => row && 'hits' in row && row.hits)).toEqual([3, 0, 3])
})

test('a line of user code in the stack of a node takes precedence over its callers', () => {
  const frame = { end_line: null, code: '', has_substack: false }
  const stack = [
    { ...frame, file: '/lib/nn.py', line: 7, is_user_code: false },
    { ...frame, file: '/home/me/net.py', line: 14, is_user_code: true },
    { ...frame, file: '/home/me/net.py', line: 14, is_user_code: false },
  ]
  expect(ownFrame({ stack })).toEqual(stack[1])
  expect([...originLines({ stack })]).toEqual([
    ['/lib/nn.py:7', 'outer'],
    ['/home/me/net.py:14', 'inner'],
  ])
})
