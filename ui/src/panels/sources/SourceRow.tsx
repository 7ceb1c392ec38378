import { ActionIcon } from '@mantine/core'
import {
  IconAlertTriangleFilled,
  IconArrowRight,
  IconChevronRight,
  IconCornerDownRight,
  IconFileText,
  IconFilterFilled,
} from '~/parts/icons'
import type { TFunction } from 'i18next'
import type { ReactNode } from 'react'
import { entryKind, KindIcon } from '~/panels/nodes/KindIcon'
import { count } from '~/parts/numbers'
import { Indent } from '~/parts/TreeIndent'
import type { LineAttributes } from '~/parts/TreeView'
import tree from '~/parts/TreeView.module.css'
import { baseName, folderName, type Origin, type SourceRow } from './lines'
import classes from './sources.module.css'

interface DrawnRow<Kind extends SourceRow['kind']> {
  t: TFunction
  row: Extract<SourceRow, { kind: Kind }>
  attributes: LineAttributes
  isSelected: boolean
}

/** A row: a file, a line of a file, or a node of a line. */
export function SourceRowView(props: DrawnRow<SourceRow['kind']>) {
  const { t, row, attributes, isSelected } = props
  switch (row.kind) {
    case 'file':
      return <FileRow {...props} row={row} />
    case 'line':
      return <LineRow {...props} row={row} />
    case 'node':
      return (
        <Frame {...props} label={row.node.entry.path} title={`${row.node.graph}\n${row.node.entry.path}`}>
          <KindIcon kind={entryKind(row.node.entry)} />
          <span className={tree['label']}>{row.node.entry.label}</span>
          <span className={tree['more']}>{row.node.entry.path.split('/').slice(0, -1).join('/')}</span>
          <Hits t={t} hits={row.node.entry.hits} />
        </Frame>
      )
    case 'more':
      return (
        <div {...attributes} className={tree['row']} aria-selected={isSelected}>
          <Indent depth={row.depth} />
          <span className={tree['twist']}>
            <IconArrowRight size={12} aria-hidden />
          </span>
          <span className={classes['more']}>{t('more', { count: row.rest, rest: count(row.rest) })}</span>
        </div>
      )
    case 'waiting':
      return (
        <div
          {...attributes}
          className={tree['row']}
          aria-busy={row.message === undefined}
          aria-label={row.message ?? t('loading')}
        >
          <Indent depth={row.depth} />
          <span className={tree['twist']} />
          {row.message === undefined ? (
            <span className={tree['waiting']} style={{ width: 90 }} />
          ) : (
            <span className={tree['more']} title={row.message}>
              {row.message}
            </span>
          )}
        </div>
      )
  }
}

function FileRow({ t, row, attributes }: DrawnRow<'file'>) {
  const { file, hits } = row
  const name = baseName(file.file)
  return (
    <div
      {...attributes}
      className={tree['row']}
      data-testid="source-file"
      data-file={file.file}
      title={file.has_text ? file.file : `${file.file}\n${t('noText')}`}
      aria-selected={false}
    >
      <Twist />
      <span className={`${tree['label'] ?? ''} ${classes['file'] ?? ''}`}>{name}</span>
      <span className={tree['more']}>{file.is_library ? t('library') : folderName(file.file)}</span>
      <span className={tree['end']}>
        <HitCount t={t} hits={hits} />
        <span title={t('fileLines', { count: file.lines.length, lines: count(file.lines.length) })}>
          {count(file.lines.length)}
        </span>
        {file.has_text && (
          <ActionIcon
            size={18}
            tabIndex={-1}
            aria-label={t('text', { file: name })}
            title={t('text', { file: name })}
            data-part="text"
          >
            <IconFileText size={13} />
          </ActionIcon>
        )}
      </span>
    </div>
  )
}

function LineRow({ t, row, attributes, isSelected }: DrawnRow<'line'>) {
  const { line, hits, origin } = row
  const nodes = t('nodes', { count: line.nodes, nodes: count(line.nodes) })
  const title = [row.name, line.code, nodes, t(isSelected ? 'filtered' : 'filter')]
  return (
    <div
      {...attributes}
      className={tree['row']}
      data-testid="source-line"
      data-line={line.line}
      data-file={row.file}
      data-origin={origin}
      data-hits={hits || undefined}
      aria-selected={origin === 'inner'}
      title={title.join('\n')}
    >
      <Twist />
      <OriginSign t={t} origin={origin} />
      <span className={classes['number']}>{line.line}</span>
      <span className={`${classes['code'] ?? ''} ${tree['label'] ?? ''}`}>{line.code.trim()}</span>
      <span className={tree['end']}>
        {isSelected && (
          <span className={classes['filtering']} role="img" aria-label={t('filtered')}>
            <IconFilterFilled size={11} />
          </span>
        )}
        <HitCount t={t} hits={hits} />
        <span>{count(line.nodes)}</span>
      </span>
    </div>
  )
}

function Frame(
  props: Omit<DrawnRow<SourceRow['kind']>, 't'> & { label: string; title: string; children: ReactNode },
) {
  const { row, attributes, isSelected, label, title, children } = props
  return (
    <div
      {...attributes}
      className={tree['row']}
      data-testid="source-node"
      data-path={label}
      aria-selected={isSelected}
      title={title}
    >
      <Indent depth={row.depth} />
      <span className={tree['twist']} />
      {children}
    </div>
  )
}

function Twist() {
  return (
    <span className={tree['twist']} data-part="twist">
      <IconChevronRight size={13} aria-hidden />
    </span>
  )
}

/** The sign that the selected node comes from this line or was called from it. */
export function OriginSign({ t, origin }: { t: TFunction; origin: Origin | undefined }) {
  return (
    <span className={classes['origin']} data-origin={origin} title={origin && t(origin)}>
      {origin === 'inner' && <IconArrowRight size={11} stroke={2.5} role="img" aria-label={t('inner')} />}
      {origin === 'outer' && <IconCornerDownRight size={10} role="img" aria-label={t('outer')} />}
    </span>
  )
}

function Hits({ t, hits }: { t: TFunction; hits: number }) {
  return (
    <span className={tree['end']}>
      <HitCount t={t} hits={hits} />
    </span>
  )
}

function HitCount({ t, hits }: { t: TFunction; hits: number }) {
  if (hits === 0) return null
  return (
    <span className={tree['hits']} title={t('hits', { count: hits })}>
      <IconAlertTriangleFilled size={11} aria-hidden />
      {count(hits)}
    </span>
  )
}
