import { expect, test } from 'vitest'
import type { SearchPage, SourceFile } from '~/api/types'
import { namesIn, nodeNamed, sourceOf } from './where'

const node = (path: string, apart = false) =>
  ({ rank: 1, graph: 'g', entry: { path, apart } }) as unknown as SearchPage['nodes'][number]
const file = (name: string, is_library = false) =>
  ({ file: name, is_library, has_text: true, lines: [] }) as unknown as SourceFile

test('a list of names is taken apart, with the number of those that it leaves out', () => {
  expect(namesIn('fc1.weight')).toEqual({ names: ['fc1.weight'], total: 1 })
  expect(namesIn('a.bias, b.bias … (12)')).toEqual({ names: ['a.bias', 'b.bias'], total: 12 })
  expect(namesIn('')).toEqual({ names: [], total: 0 })
})

test('a parameter is the node of its name, a module its own node or the first operator of its scope', () => {
  const nodes = ['Default/body/10/relu-op0', 'Default/body/1/norm-op0', 'body.1.weight'].map((path) =>
    node(path),
  )
  expect(nodeNamed(nodes, 'body.1.weight')?.name).toBe('body.1.weight')
  expect(nodeNamed(nodes, 'body.1')).toEqual({ rank: 1, graph: '', name: 'Default/body/1/norm-op0' })
  expect(nodeNamed([...nodes, node('Net/body/1', true)], 'body.1')).toEqual({
    rank: 1,
    graph: 'g',
    name: 'Net/body/1',
  })
  expect(nodeNamed(nodes, 'body.2')).toBeNull()
})

test('a position names a line of exactly one file', () => {
  const mine = file('/home/me/run/train.py')
  const files = [mine, file('/lib/python/train.py', true), file('/home/me/run/pretrain.py')]
  expect(sourceOf('train.py:13', files)).toEqual({ file: mine, line: 13 })
  expect(sourceOf('run/train.py:13', files)).toEqual({ file: mine, line: 13 })
  expect(sourceOf('C:\\me\\train.py:13', [file('C:\\me\\train.py')])?.line).toBe(13)
  expect(sourceOf('train.py:13', [...files, file('/home/you/train.py')])).toBeNull()
  expect(sourceOf('model.py:3', files)).toBeNull()
  expect(sourceOf('', files)).toBeNull()
})
