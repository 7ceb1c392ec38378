import { useReactFlow } from '@xyflow/react'
import { useCallback, useLayoutEffect, useMemo, useRef } from 'react'
import css from './graph.module.css'
import type { Layout, Position } from './layout'

const MARGIN = 28
const LARGEST_ZOOM = 1
/** Below this zoom the text is unreadable; a tall graph shows its top first. */
const READABLE = 0.65
const LEAST_ZOOM = 0.04

/** Move the picture: fit it, go to a box, and keep a box in place while its surroundings are laid out again. */
export function useViewport(frame: HTMLElement | null, layout: Layout | undefined) {
  const { getViewport, setViewport } = useReactFlow()
  const held = useRef<{ id: string; x: number; y: number; isOpening: boolean } | null>(null)
  const last = useRef<Layout | undefined>(undefined)

  const fit = useCallback(
    (least: number) => {
      const room = frame?.getBoundingClientRect()
      if (!room || !layout?.width) return
      const whole = Math.min(
        (room.width - 2 * MARGIN) / layout.width,
        (room.height - 2 * MARGIN) / layout.height,
        LARGEST_ZOOM,
      )
      const zoom = Math.max(whole, least)
      const y = layout.height * zoom > room.height ? MARGIN / 2 : (room.height - layout.height * zoom) / 2
      void setViewport({ zoom, x: (room.width - layout.width * zoom) / 2, y })
    },
    [frame, layout, setViewport],
  )

  const goTo = useCallback(
    (position: Position) => {
      const room = frame?.getBoundingClientRect()
      if (!room) return
      const zoom = Math.max(getViewport().zoom, 0.8)
      const x = room.width / 2 - (position.x + position.width / 2) * zoom
      void setViewport({ zoom, x, y: room.height / 2 - (position.y + position.height / 2) * zoom })
    },
    [frame, getViewport, setViewport],
  )

  const isInView = useCallback(
    (position: Position) => {
      const room = frame?.getBoundingClientRect()
      const { x, y, zoom } = getViewport()
      const left = position.x * zoom + x
      const top = position.y * zoom + y
      if (!room) return false
      const right = left + position.width * zoom
      const bottom = top + position.height * zoom
      return (
        zoom >= READABLE &&
        left >= 0 &&
        top >= 0 &&
        right <= room.width &&
        bottom <= room.height &&
        !covers(frame).some(
          (over) =>
            left < over.right - room.left &&
            right > over.left - room.left &&
            top < over.bottom - room.top &&
            bottom > over.top - room.top,
        )
      )
    },
    [frame, getViewport],
  )

  const hold = useCallback(
    (id: string, isOpening: boolean) => {
      const position = layout?.positions.get(id)
      const { x, y, zoom } = getViewport()
      if (!position) return
      const middle = (position.x + position.width / 2) * zoom + x
      held.current = { id, x: middle, y: position.y * zoom + y, isOpening }
    },
    [layout, getViewport],
  )

  /** Show as much of an opened box as fits: smaller if that helps, and near the position where it was opened. */
  const showOpened = useCallback(
    (position: Position, first: Position, x: number, y: number) => {
      const room = frame?.getBoundingClientRect()
      if (!room) return
      const before = getViewport().zoom
      const inner = { width: room.width - 2 * MARGIN, height: room.height - 2 * MARGIN }
      const whole = Math.min(inner.width / position.width, inner.height / position.height)
      const zoom = Math.min(before, Math.max(whole, READABLE))
      const spare = inner.width - position.width * zoom
      const top = within(y, inner.height - position.height * zoom)
      const left =
        spare >= 0
          ? within(x - (position.width / 2) * zoom, spare)
          : Math.max(
              MARGIN + spare,
              Math.min(MARGIN, room.width / 2 - (first.x + first.width / 2 - position.x) * zoom),
            )
      void setViewport({ zoom, x: left - position.x * zoom, y: top - position.y * zoom })
    },
    [frame, getViewport, setViewport],
  )

  useLayoutEffect(() => {
    if (!layout || last.current === layout) return
    const isFirst = last.current === undefined
    last.current = layout
    const position = held.current && layout.positions.get(held.current.id)
    if (held.current && position) {
      const { zoom } = getViewport()
      const { x, y, isOpening } = held.current
      if (isOpening) showOpened(position, firstInside(layout, position), x, y)
      else
        void setViewport({ zoom, x: x - (position.x + position.width / 2) * zoom, y: y - position.y * zoom })
    } else if (isFirst) fit(READABLE)
    held.current = null
  }, [layout, fit, showOpened, getViewport, setViewport])

  return useMemo(() => ({ fitAll: () => fit(LEAST_ZOOM), goTo, isInView, hold }), [fit, goTo, isInView, hold])
}

export type Viewport = ReturnType<typeof useViewport>

/** Return the rectangles of the controls over the picture, under which the target must not be hidden. */
function covers(frame: HTMLElement | null): DOMRect[] {
  const names = ['toolbar', 'legend', 'minimap', 'choice'].map((name) => `.${css[name]}`)
  return [...(frame?.querySelectorAll(names.join(', ')) ?? [])].map((element) =>
    element.getBoundingClientRect(),
  )
}

/** Limit a position to `room` pixels from the margin; return the margin if there is no room. */
function within(position: number, room: number): number {
  return room <= 0 ? MARGIN : Math.max(MARGIN, Math.min(position, MARGIN + room))
}

/** Return the uppermost box inside another, or the other box if there is none. */
function firstInside(layout: Layout, around: Position): Position {
  let first = around
  for (const position of layout.positions.values()) {
    const isInside =
      position !== around &&
      position.x >= around.x &&
      position.y >= around.y &&
      position.x + position.width <= around.x + around.width &&
      position.y + position.height <= around.y + around.height
    if (isInside && (first === around || position.y < first.y)) first = position
  }
  return first
}
