import { IconAlertTriangle, IconChevronDown, IconEye, IconEyeDotted, IconPlayerPlay } from '~/parts/icons'
import type { Node, NodeProps } from '@xyflow/react'
import { memo, useEffect, useRef, type CSSProperties } from 'react'
import { useTranslation } from 'react-i18next'
import { useAdded } from '~/panels/compare/added'
import { useAddedText } from '~/panels/compare/AddedMark'
import compare from '~/panels/compare/compare.module.css'
import { count } from '~/parts/numbers'
import css from './graph.module.css'
import { useMarks } from './marks'
import type { Box as BoxRecord } from './picture'
import { graphTexts } from './texts'

export type BoxNode = Node<{ box: BoxRecord; toggle: (box: BoxRecord) => void }, 'box'>

/** A box of the picture: a node, a closed scope or cluster, or the frame of an open one. */
export const Box = memo(function Box({ data: { box, toggle } }: NodeProps<BoxNode>) {
  const { t } = useTranslation(graphTexts)
  const isChosen = useMarks((marks) => marks.chosen === box.id)
  const isCurrent = useMarks((marks) => marks.current === box.id)
  const isDim = useMarks((marks) => marks.reach !== null && !marks.reach.boxes.has(box.id))
  const takesFocus = useMarks((marks) => marks.chosen === box.id && marks.takesFocus)
  const self = useRef<HTMLDivElement>(null)
  useEffect(() => {
    if (takesFocus) self.current?.focus({ preventScroll: true })
  }, [takesFocus])
  const added = useAdded(coloured(box))
  const addedText = useAddedText(added)
  const label = nameOf(box, t)
  const holdsMore = box.kind === 'scope' || box.kind === 'cluster'
  const labels = [
    label,
    box.detail,
    holdsMore ? t('nodes', { count: box.nodes }) : t(box.kind),
    ...(box.hits ? [t('hits', { count: box.hits })] : []),
    ...(isCurrent ? [t('runHere')] : []),
    ...(box.watched === 'all' ? [t('watchedAll')] : box.watched === 'some' ? [t('watchedSome')] : []),
    ...(box.isDynamic ? [t('dynamic')] : []),
    ...(addedText ? [addedText] : []),
  ].filter(Boolean)
  const common = {
    className: css['box'],
    'data-testid': 'graph-node',
    'data-path': box.path,
    'data-kind': box.kind,
    'data-role': box.roles.find((role) => role === 'gradient' || role === 'activation'),
    'data-open': box.isOpen || undefined,
    'data-hit': box.hits > 0 || undefined,
    'data-chosen': isChosen || undefined,
    'data-current': isCurrent || undefined,
    'data-dim': (isDim && !box.isOpen) || undefined,
    'data-proxy': box.isProxy || undefined,
    'data-dynamic': box.isDynamic || undefined,
    'data-added': added?.added ?? undefined,
    'data-divergent': added?.divergent || undefined,
    ...(added && {
      style: { background: added.back, color: added.ink, '--quiet': added.ink } as CSSProperties,
    }),
    title: [holdsMore && box.kind === 'cluster' ? label : box.path, ...labels.slice(1)].join('\n'),
  }
  const marks = (
    <>
      {isCurrent && (
        <span className={css['here']} aria-hidden>
          <IconPlayerPlay size={11} fill="currentColor" />
        </span>
      )}
      {(box.watched === 'all' || box.watched === 'some') && (
        <span className={css['watched']} aria-hidden>
          {box.watched === 'all' ? <IconEye size={12} /> : <IconEyeDotted size={12} />}
        </span>
      )}
      {added !== undefined && added.divergent > 0 && (
        <span className={compare['diverges']} aria-hidden>
          ≠
        </span>
      )}
      {box.hits > 0 && (
        <span className={css['hits']} aria-hidden>
          <IconAlertTriangle size={11} />
          {box.hits > 1 && count(box.hits)}
        </span>
      )}
    </>
  )
  if (box.isOpen) {
    return (
      <div {...common} role="group" aria-label={labels.join(', ')}>
        <div className={css['header']}>
          <button
            type="button"
            className={css['fold']}
            aria-label={`${t('close')}: ${label}`}
            aria-expanded
            onClick={(event) => {
              event.stopPropagation()
              toggle(box)
            }}
          >
            <IconChevronDown size={14} />
          </button>
          <span className={css['name']}>{label}</span>
          <span className={css['detail']}>{box.detail || count(box.nodes)}</span>
        </div>
        {marks}
      </div>
    )
  }
  return (
    <div
      {...common}
      ref={self}
      role="button"
      tabIndex={isChosen ? 0 : -1}
      aria-label={labels.join(', ')}
      aria-pressed={isChosen}
      {...(holdsMore && { 'aria-expanded': false })}
    >
      {/* Spaces, as screen readers read the text as part of the name. */}
      <span className={css['name']}>{label}</span>{' '}
      {holdsMore && (
        <span className={css['detail']}>
          {box.detail && `${box.detail} · `}
          {t('nodes', { count: box.nodes })}
        </span>
      )}{' '}
      {marks}
    </div>
  )
})

/** Return the nodes whose added error colours a box; none for frames and for nodes that are not operators. */
function coloured(box: BoxRecord): readonly string[] {
  if (box.isOpen || box.isProxy || box.path.startsWith('@')) return []
  if (box.kind === 'cluster') return box.members
  return box.kind === 'scope' || box.kind === 'operator' ? [box.path] : []
}

function nameOf(box: BoxRecord, t: (key: string) => string): string {
  if (box.path === '@parameters') return t('parameters')
  if (box.path === '@constants') return t('constants')
  return box.label
}
