import { expect, test } from 'vitest'
import { stackText } from './filter'
import { searchListRows, searchTreeRows, type FoundNode } from './searchRows'
import type { TreeLines } from '~/parts/treeLines'
import type { Row } from './rows'
import { covers, expected, type Edit } from './ticks'

function node(path: string, change: Partial<FoundNode['entry']> = {}): FoundNode {
  const label = path.split('/').at(-1) ?? ''
  const entry = {
    path,
    label,
    kind: 'operator' as const,
    type: '',
    roles: [],
    children: 0,
    nodes: 1,
    hits: 0,
    graph: 'g',
    graphs: [],
    apart: false,
  }
  return { rank: 0, graph: 'g', entry: { ...entry, dynamic_shape: false, ...change } }
}

const nodes = [
  node('net/fc/MatMul', { hits: 1, watched: 'all' }),
  node('net/Add', { watched: 'none' }),
  node('fc.weight', { kind: 'parameter', watched: 'all' }),
  node('net/fc/Relu', { watched: 'all' }),
]
const shape = { rank: 0, graph: '', nodes, closed: new Set<string>(), isStale: false }
const all = (rows: TreeLines<Row>) => Array.from({ length: rows.length }, (_, index) => rows.at(index))
const drawn = (rows: TreeLines<Row>) =>
  rows.loadedRows().map((row) => row.kind === 'entry' && `${' '.repeat(row.depth)}${row.entry.path}`)

test('matching nodes are in their scopes, as in the whole tree', () => {
  expect(drawn(searchTreeRows(shape))).toEqual([
    'net',
    ' net/fc',
    '  net/fc/MatMul',
    '  net/fc/Relu',
    ' net/Add',
    '@parameters',
    ' fc.weight',
  ])
})

test('scopes are in the order of the matches in them', () => {
  const matches = ['h/2/MatMul', 'h/10/MatMul', 'h/1/Add'].map((path) => node(path))
  expect(
    drawn(searchTreeRows({ ...shape, nodes: matches })).filter((path) => /h.\d+$/.test(String(path))),
  ).toEqual([' h/2', ' h/10', ' h/1'])
})

test('several nodes of one name are several rows', () => {
  const two = ['f', 'g'].map((graph) => node('net/Add', { apart: true, graph, graphs: [graph] }))
  const rows = searchTreeRows({ ...shape, nodes: two }).loadedRows()
  expect(new Set(rows.map((row) => row.key)).size).toBe(3)
})

test('a scope counts only the matches in it', () => {
  const [net, fc] = searchTreeRows(shape).loadedRows()
  expect(net).toMatchObject({ entry: { nodes: 3, hits: 1, watched: 'some' }, siblings: 2 })
  expect(fc).toMatchObject({ entry: { nodes: 2, hits: 1, watched: 'all' } })
})

test('a closed scope hides its contents', () => {
  const rows = searchTreeRows({ ...shape, closed: new Set(['\nnet\n']) })
  expect(drawn(rows)).toEqual(['net', '@parameters', ' fc.weight'])
})

test('a list has a row for each node, also on pages that are not loaded yet', () => {
  const rows = searchListRows(0, '', 5, new Map([[1, nodes.slice(0, 2)]]), 2, false)
  expect(all(rows).map((row) => row?.kind)).toEqual(['loading', 'loading', 'entry', 'entry', 'loading'])
  expect(rows.at(2)).toMatchObject({ below: 'net/fc', nth: 3, siblings: 5 })
  expect(rows.at(4)).toMatchObject({ page: { number: 2 } })
})

test('a tick covers a scope, and in a search only what matches', () => {
  const edit: Edit = { add: true, graph: 'g', path: 'net', containing: '' }
  const at = (path: string) => ({ graph: 'g', entry: node(path).entry })
  expect(covers(edit, at('net/fc/MatMul'))).toBe(true)
  expect(covers(edit, at('network/Add'))).toBe(false)
  expect(covers({ ...edit, containing: 'matmul' }, at('net/Add'))).toBe(false)
  expect(covers({ ...edit, graph: 'h' }, at('net/Add'))).toBe(false)
  const parameters = { ...edit, path: '@parameters' }
  expect(covers(parameters, { graph: 'g', entry: node('fc.weight', { kind: 'parameter' }).entry })).toBe(true)
  expect(covers(parameters, at('net/Add'))).toBe(false)
  expect(expected(at('net/Add'), [edit, { ...edit, add: false, path: 'net/Add' }])).toBe(false)
})

test('a line of code does not match the beginning of its number', () => {
  expect(stackText('/home/me/net.py:4')).toBe('/home/me/net.py:4  ')
  expect(stackText('relu')).toBe('relu')
  expect(stackText(`${'x'.repeat(300)}.py:4`)).toHaveLength(255)
})
