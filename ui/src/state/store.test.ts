import { beforeEach, expect, test } from 'vitest'
import { emptyView, useView } from './store'

const view = () => useView.getState()
beforeEach(() => useView.setState({ ...emptyView, run: '1' }))

test('a tensor has one tab, whatever its step', () => {
  view().openTensor('0/g/n:0@4')
  view().openTensor('0/g/n:0')
  expect(view()).toMatchObject({ tensors: ['0/g/n:0'], tab: 'tensor:0/g/n:0' })
})

test('closing a tab shows its neighbour, and the graph when there is none', () => {
  for (const name of ['a', 'b', 'c']) view().openTensor(`0/g/${name}:0`)
  view().set({ tab: 'tensor:0/g/b:0' })
  view().closeTensor('0/g/b:0')
  expect(view().tab).toBe('tensor:0/g/c:0')
  view().closeTensor('0/g/a:0')
  expect(view().tab).toBe('tensor:0/g/c:0')
  view().closeTensor('0/g/c:0')
  expect(view()).toMatchObject({ tensors: [], tab: 'graph' })
})

test('selecting a node of another rank shows that rank', () => {
  view().selectNode({ rank: 2, graph: 'g', name: 'n' }, 'graph')
  expect(view()).toMatchObject({ rank: 2, tab: 'graph', node: { name: 'n' } })
})

test('another run starts from nothing', () => {
  view().openTensor('0/g/n:0')
  view().set({ watchpoint: 3, left: 'hits' })
  view().openRun('2')
  expect(view()).toMatchObject({ ...emptyView, run: '2' })
})
