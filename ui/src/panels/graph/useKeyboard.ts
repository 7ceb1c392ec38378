import type { KeyboardEvent } from 'react'
import type { Layout, Position } from './layout'
import { useMarks } from './marks'
import type { Box, Picture } from './picture'
import type { Viewport } from './useViewport'

interface Drawn {
  picture: Picture | undefined
  layout: Layout | undefined
  viewport: Viewport
  choose: (box: Box, takesFocus: boolean) => void
  enter: (box: Box) => void
  leave: () => void
}

const TOWARDS: Record<string, readonly [number, number]> = {
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
}

/** Arrow keys move along the wires, or to the nearest box in their direction; Enter opens, Escape leaves. */
export function useKeyboard({ picture, layout, viewport, choose, enter, leave }: Drawn) {
  return (event: KeyboardEvent) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return
    if (!(event.target instanceof Element) || event.target.closest('button, input, [role=toolbar]')) return
    const chosen = picture?.boxes.find((box) => box.id === useMarks.getState().chosen)
    const towards = TOWARDS[event.key]
    if (event.key === 'Escape') leave()
    else if ((event.key === 'Enter' || event.key === ' ') && chosen) enter(chosen)
    else if (towards && picture && layout) {
      const next = chosen
        ? nextBox(picture, layout, chosen, towards)
        : picture.boxes.find((box) => !box.isOpen)
      if (next) {
        choose(next, true)
        const position = layout.positions.get(next.id)
        if (position && !viewport.isInView(position)) viewport.goTo(position)
      }
    } else return
    event.preventDefault()
  }
}

function nextBox(
  picture: Picture,
  layout: Layout,
  from: Box,
  [dx, dy]: readonly [number, number],
): Box | undefined {
  const here = layout.positions.get(from.id)
  if (!here) return undefined
  const along = picture.wires.flatMap((wire) =>
    dy > 0 && wire.source === from.id
      ? [wire.target]
      : dy < 0 && wire.target === from.id
        ? [wire.source]
        : [],
  )
  const linked = new Set(along)
  const candidates = picture.boxes.filter((box) => !box.isOpen && (linked.size === 0 || linked.has(box.id)))
  let nearest: Box | undefined
  let least = Infinity
  for (const box of candidates) {
    const position = layout.positions.get(box.id)
    if (!position || box === from) continue
    const [x, y] = [middle(position)[0] - middle(here)[0], middle(position)[1] - middle(here)[1]]
    const ahead = x * dx + y * dy
    if (ahead <= 1 && linked.size === 0) continue
    // Distance to the side weighs more than distance ahead.
    const distance = Math.abs(ahead) + 3 * Math.abs(dx ? y : x)
    if (distance < least) [nearest, least] = [box, distance]
  }
  return nearest
}

function middle({ x, y, width, height }: Position): readonly [number, number] {
  return [x + width / 2, y + height / 2]
}
