import { describe, expect, it } from 'vitest'
import type { TreeEntry } from '~/api/types'
import { clustered, isCluster } from './groups'

const IN_ALL = { graph: 'g', graphs: [], apart: false }

function entry(label: string, kind: TreeEntry['kind'] = 'operator', type = ''): TreeEntry {
  return {
    path: label,
    label,
    kind,
    type,
    children: 0,
    nodes: 1,
    hits: 0,
    roles: [],
    dynamic_shape: false,
    ...IN_ALL,
  }
}

function drawn(entries: TreeEntry[]): string[] {
  return clustered(entries).map((item) => (isCluster(item) ? `${item.label} ${item.detail}` : item.label))
}

describe('what is drawn of the entries of a scope', () => {
  it('is all of them where there are few', () => {
    const few = Array.from({ length: 30 }, (_, number) => entry(`ReLU-op${number}`, 'operator', 'ReLU'))
    expect(clustered(few)).toEqual(few)
  })

  it('orders scopes as people count', () => {
    expect(drawn([entry('10-Block', 'scope'), entry('9-Block', 'scope')])).toEqual(['9-Block', '10-Block'])
  })

  it('draws operators of one type as one where there are many', () => {
    const many = Array.from({ length: 31 }, (_, number) =>
      entry(`op${number}`, 'operator', number < 28 ? 'Add' : 'Mul'),
    )
    expect(drawn(many)).toEqual(['Add ×28', 'op28', 'op29', 'op30'])
  })

  it('splits very many alike scopes into runs that can be taken in', () => {
    const blocks = Array.from({ length: 120 }, (_, number) => entry(`${number}-Block`, 'scope'))
    expect(drawn(blocks)).toEqual([
      '0-Block … 49-Block ×50',
      '50-Block … 99-Block ×50',
      '100-Block … 119-Block ×20',
    ])
  })

  it('never draws a great many boxes, even if nothing is alike', () => {
    const all = Array.from({ length: 500 }, (_, number) => entry(`op${number}`, 'operator', `Type${number}`))
    expect(clustered(all)).toHaveLength(10)
    expect(clustered(all).flatMap((item) => (isCluster(item) ? item.entries : [item]))).toEqual(all)
  })
})
