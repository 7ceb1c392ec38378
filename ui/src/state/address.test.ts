import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { followAddressBar, fromQuery, showStep, toQuery } from './address'
import { emptyView, useView, type View } from './store'

const view: View = {
  ...emptyView,
  run: '3',
  rank: 1,
  graph: 'kernel_graph_0',
  node: { rank: 1, graph: 'kernel_graph_1', name: 'Default/network/conv1 & relu/Log-op3' },
  tab: 'tensor:1/kernel_graph_1/Default/Log-op3:0',
  tensors: ['1/kernel_graph_1/Default/Log-op3:0', '1/kernel_graph_1/Default/Exp-op2:input.1'],
  left: 'hits',
  watchpoint: 2,
  stackFilter: '/home/me/net work.py:49',
  other: 'runs/port of mine',
  part: 'values',
}

let stop: () => void
beforeEach(() => {
  vi.useFakeTimers()
  window.history.replaceState(null, '', '/')
  stop = followAddressBar()
  showStep(null)
})
afterEach(() => {
  stop()
  useView.setState(emptyView)
  vi.useRealTimers()
})

test('a link reopens the same view', () => {
  expect(fromQuery(toQuery(view, 12))).toEqual({ ...view, linkedStep: 12 })
  expect(fromQuery(toQuery(emptyView))).toEqual(emptyView)
})

test('a link can be read', () => {
  expect(toQuery({ ...emptyView, run: '1', tensors: ['0/g/fc1.weight:0'] }, 2)).toBe(
    '?run=1&step=2&tensor=0/g/fc1.weight:0',
  )
})

test.each([
  ['?run=1&rank=-1&step=1e9&watch=x', { ...emptyView, run: '1' }],
  ['?run=1&tab=tensor:0/g/n:0', { ...emptyView, run: '1' }],
  ['?run=1&tab=settings&left=all&part=all', { ...emptyView, run: '1' }],
  ['?rank=1&node=a', emptyView],
  ['?run=1&tensor=0/g/n:0', { ...emptyView, run: '1', tensors: ['0/g/n:0'], tab: 'tensor:0/g/n:0' }],
])('invalid values in a link are ignored: %s', (search, expected) => {
  expect(fromQuery(search)).toEqual(expected)
})

test('a view that the user stayed at has its own entry, views that were passed have none', () => {
  const push = vi.spyOn(window.history, 'pushState')
  const choose = (name: string) => useView.getState().selectNode({ rank: 0, graph: 'g', name })
  useView.getState().openRun('1')
  expect(push).toHaveBeenCalledTimes(1)
  vi.advanceTimersByTime(2_000)
  for (const name of ['a', 'b', 'c']) choose(name)
  expect(push).toHaveBeenCalledTimes(2)
  expect(window.location.search).toBe('?run=1&node=c&in=g')
  vi.advanceTimersByTime(2_000)
  useView.getState().set({ left: 'sources' })
  showStep(4)
  expect(push).toHaveBeenCalledTimes(2)
  expect(window.location.search).toBe('?run=1&step=4&node=c&in=g&left=sources')
  useView.getState().set({ tab: 'graph' })
  expect(push).toHaveBeenCalledTimes(3)
})

test('going back shows the view of the entry and adds none', () => {
  useView.getState().openRun('1')
  const push = vi.spyOn(window.history, 'pushState')
  push.mockClear()
  window.history.replaceState(null, '', '?tab=graph&run=2&step=7')
  window.dispatchEvent(new PopStateEvent('popstate'))
  expect(useView.getState()).toMatchObject({ run: '2', tab: 'graph', linkedStep: null })
  expect(push).not.toHaveBeenCalled()
  expect(window.location.search).toBe('?run=2&tab=graph')
})
