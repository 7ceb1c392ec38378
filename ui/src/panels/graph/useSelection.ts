import { useEffect, useRef } from 'react'
import { useNode, useSession } from '~/api/queries'
import { useView } from '~/state/store'
import type { Layout } from './layout'
import { useMarks } from './marks'
import { openPart, scopesAround, useOpenParts, withOpen } from './openPart'
import { boxFor, boxHolding, type Picture } from './picture'
import type { Viewport } from './useViewport'

interface Drawn {
  part: string
  rank: number
  graph: string
  picture: Picture | undefined
  layout: Layout | undefined
  viewport: Viewport
}

/** Let the picture follow the selection: open the scopes around a node selected elsewhere, and move to it. */
export function useSelection({ part, rank, graph, picture, layout, viewport }: Drawn): void {
  const node = useView((view) => view.node)
  const { data: record } = useNode()
  const { data: session } = useSession()
  const rankRecord = session?.ranks.find((other) => other.rank === rank)
  const current = rankRecord?.graph === graph ? rankRecord.node : ''
  const target = useRef('')
  const isHere = node?.rank === rank && record?.name === node.name && record.graph === graph
  const name = isHere ? node.name : ''

  useEffect(() => {
    target.current = name
  }, [name])

  useEffect(() => {
    if (name === '' || target.current !== name || record?.name !== name || record.graph !== graph) return
    const inside = record.kind === 'operator' ? record.scope : scopeOf(record.consumers[0] ?? '')
    const open = openPart(part)
    if (scopesAround(inside).some((scope) => !open.scopes.includes(scope))) {
      useOpenParts.getState().set(part, withOpen(open, scopesAround(inside)))
    }
    if (record.kind === 'parameter') useOpenParts.getState().show({ parameters: true })
    if (record.kind === 'constant') useOpenParts.getState().show({ constants: true })
  }, [name, record, graph, part])

  useEffect(() => {
    if (!picture || !layout) return
    const marks = useMarks.getState()
    const stoppedBox = current === '' ? undefined : boxHolding(picture, current)
    const box = name === '' ? undefined : boxHolding(picture, name)
    marks.set({ current: stoppedBox?.id ?? '' })
    if (!box) {
      if (name === '' && picture.boxes.find((other) => other.id === marks.chosen)?.kind === 'operator') {
        marks.set({ chosen: '' })
      }
      return
    }
    const isKept = picture.boxes.some(
      (other) => other.id === marks.chosen && (other.path === name || other.members.includes(name)),
    )
    if (!isKept) marks.set({ chosen: box.id })
    if (target.current !== name) return
    if (box.kind === 'cluster' && boxFor(picture, name) === box) {
      const open = openPart(part)
      useOpenParts.getState().set(part, withOpen(open, [], [box.path]))
      return
    }
    if (box.path !== name) return
    target.current = ''
    const position = layout.positions.get(isKept ? marks.chosen : box.id)
    if (position && !viewport.isInView(position)) viewport.goTo(position)
  }, [picture, layout, name, current, part, viewport])
}

function scopeOf(name: string): string {
  return name.slice(0, Math.max(0, name.lastIndexOf('/')))
}
