import { useReactFlow } from '@xyflow/react'
import { useCallback, useLayoutEffect, useMemo, useRef } from 'react'
import type { Layout, Place } from './layout'

const MARGIN = 28
const LARGEST_ZOOM = 1.1
/** Below this nothing can be read; a tall graph shows its beginning first. */
const READABLE = 0.55
const LEAST_ZOOM = 0.04

/** Move the picture: fit it, go to a box, and hold a box in its place while what is around it is laid out anew. */
export function useViewport(frame: HTMLElement | null, layout: Layout | undefined) {
  const { getViewport, setViewport } = useReactFlow()
  const held = useRef<{ id: string; x: number; y: number } | null>(null)
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
    (place: Place) => {
      const room = frame?.getBoundingClientRect()
      if (!room) return
      const zoom = Math.max(getViewport().zoom, 0.8)
      const x = room.width / 2 - (place.x + place.width / 2) * zoom
      void setViewport({ zoom, x, y: room.height / 2 - (place.y + place.height / 2) * zoom })
    },
    [frame, getViewport, setViewport],
  )

  const isInView = useCallback(
    (place: Place) => {
      const room = frame?.getBoundingClientRect()
      const { x, y, zoom } = getViewport()
      const left = place.x * zoom + x
      const top = place.y * zoom + y
      if (!room) return false
      return (
        left >= 0 &&
        top >= 0 &&
        left + place.width * zoom <= room.width &&
        top + place.height * zoom <= room.height
      )
    },
    [frame, getViewport],
  )

  const hold = useCallback(
    (id: string) => {
      const place = layout?.places.get(id)
      const { x, y, zoom } = getViewport()
      if (place) held.current = { id, x: (place.x + place.width / 2) * zoom + x, y: place.y * zoom + y }
    },
    [layout, getViewport],
  )

  useLayoutEffect(() => {
    if (!layout || last.current === layout) return
    const isFirst = last.current === undefined
    last.current = layout
    const place = held.current && layout.places.get(held.current.id)
    if (held.current && place) {
      const { zoom } = getViewport()
      const { x, y } = held.current
      void setViewport({ zoom, x: x - (place.x + place.width / 2) * zoom, y: y - place.y * zoom })
    } else if (isFirst) fit(READABLE)
    held.current = null
  }, [layout, fit, getViewport, setViewport])

  return useMemo(() => ({ fitAll: () => fit(LEAST_ZOOM), goTo, isInView, hold }), [fit, goTo, isInView, hold])
}

export type Viewport = ReturnType<typeof useViewport>
