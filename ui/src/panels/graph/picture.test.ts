import { describe, expect, it } from 'vitest'
import type { GraphEdge, GraphLevel, TreeEntry } from '~/api/types'
import { boxFor, boxHolding, pictureOf, structureOf, type Shown } from './picture'
import { reach } from './reach'

const IN_ALL = { graph: 'g', graphs: [], apart: false }

function entry(path: string, kind: TreeEntry['kind'] = 'operator', type = 'Add'): TreeEntry {
  const label = path.slice(path.lastIndexOf('/') + 1)
  const children = kind === 'operator' ? 0 : 1
  return { path, label, kind, type, children, nodes: 1, hits: 0, roles: [], dynamic_shape: false, ...IN_ALL }
}

function edge(source: string, target: string, count = 1, control = false): GraphEdge {
  return { source, target, count, control, label: count === 1 ? 'float32[8,3]' : '' }
}

function level(change: Partial<GraphLevel>): GraphLevel {
  const empty = {
    rank: 0,
    graph: 'g',
    scope: '',
    entries: [],
    opened: [],
    outside: [],
    edges: [],
    truncated: false,
  }
  return { ...empty, ...change }
}

const shown: Shown = { clusters: new Set(), parameters: true, constants: false }

const nested = level({
  entries: [entry('Default', 'scope'), entry('Gradients', 'scope'), entry('@parameters', 'parameters')],
  opened: [{ scope: 'Default', entries: [entry('Default/a'), entry('Default/b')], truncated: false }],
  outside: [entry('w', 'parameter'), entry('c', 'constant')],
  edges: [
    edge('w', 'Default/a'),
    edge('w', 'Default/b'),
    edge('c', 'Default/a'),
    edge('@parameters', 'Gradients', 3),
    edge('Default/a', 'Default/b'),
    edge('Default/b', 'Gradients', 4),
    edge('Gradients', 'Default/b', 2),
    edge('Default/a', 'Gradients', 1, true),
  ],
})

describe('the picture of the open part of a graph', () => {
  const picture = pictureOf(nested, shown)

  it('puts the contents of an open scope into its box, and parameters beside their readers', () => {
    expect(picture.boxes.map(({ id, parent }) => [id, parent])).toEqual([
      ['scope:Default', null],
      ['operator:Default/a', 'scope:Default'],
      ['operator:Default/b', 'scope:Default'],
      ['scope:Gradients', null],
      ['parameters:@parameters', null],
      ['parameter:w@scope:Default', 'scope:Default'],
    ])
  })

  it('has one wire for each pair of boxes, both ways as one', () => {
    expect(
      picture.wires.map(({ source, target, count, back, control }) => [source, target, count, back, control]),
    ).toEqual([
      ['parameter:w@scope:Default', 'operator:Default/a', 1, 0, false],
      ['parameter:w@scope:Default', 'operator:Default/b', 1, 0, false],
      ['operator:Default/a', 'operator:Default/b', 1, 0, false],
      ['operator:Default/b', 'scope:Gradients', 4, 2, false],
      ['operator:Default/a', 'scope:Gradients', 1, 0, true],
    ])
  })

  it('keeps its structure when only hits change', () => {
    const [first, ...rest] = nested.entries
    const hit = { ...nested, entries: [...(first ? [{ ...first, hits: 3 }] : []), ...rest] }
    expect(structureOf(pictureOf(hit, shown))).toBe(structureOf(picture))
    expect(structureOf(pictureOf(nested, { ...shown, constants: true }))).not.toBe(structureOf(picture))
  })

  it('finds the boxes upstream and downstream', () => {
    expect([...reach(picture.wires, 'operator:Default/b', 'up')].sort()).toEqual([
      'operator:Default/a',
      'operator:Default/b',
      'parameter:w@scope:Default',
      'scope:Gradients',
    ])
    expect([...reach(picture.wires, 'operator:Default/b', 'down')]).toContain('scope:Gradients')
  })

  it('finds the box of a node, or the smallest that contains it', () => {
    expect(boxFor(picture, 'Default/a')?.id).toBe('operator:Default/a')
    expect(boxHolding(picture, 'Gradients/x/Mul-op1')?.id).toBe('scope:Gradients')
    expect(boxHolding(picture, 'Other/Mul-op1')).toBeUndefined()
  })
})

describe('a cluster of similar siblings', () => {
  const names = Array.from({ length: 40 }, (_, number) => `s/Add-op${number}`)
  const many = level({
    entries: [entry('s', 'scope')],
    opened: [{ scope: 's', entries: names.map((name) => entry(name)), truncated: false }],
    edges: names.slice(1).map((name, number) => edge(names[number] ?? '', name)),
  })

  it('represents its members until it is open', () => {
    const closed = pictureOf(many, shown)
    const cluster = boxFor(closed, 's/Add-op7')
    expect([cluster?.kind, cluster?.label, cluster?.detail, closed.wires]).toEqual([
      'cluster',
      'Add',
      '×40',
      [],
    ])
    const open = pictureOf(many, { ...shown, clusters: new Set([cluster?.path ?? '']) })
    expect([open.boxes.length, open.wires.length, boxFor(open, 's/Add-op7')?.parent]).toEqual([
      42,
      39,
      cluster?.id,
    ])
  })
})
