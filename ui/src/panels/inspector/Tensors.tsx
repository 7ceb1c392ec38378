import { ActionIcon, Badge, Button, Skeleton, Tooltip } from '@mantine/core'
import { IconArrowLeft, IconArrowsDiff, IconDownload, IconEye } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { apiUrl } from '~/api/client'
import { path } from '~/api/queries'
import type { NodeRecord, Slot, TensorRecord } from '~/api/types'
import { bytes, count, shapeText, short } from '~/parts/numbers'
import { useView, withoutStep } from '~/state/store'
import { useTensorViews } from '../tensor/views'
import { tensorTexts } from '../tensor/texts'
import styles from './inspector.module.css'
import { inspectorTexts } from './texts'

/** The constant that represents values from outside the graph, in graphs reported by agents. */
const UNSEEN = 'Default--outside'

/** Number of inputs or outputs shown at first. */
const FEW = 24

/** The inputs and outputs of a node: types, statistics, and buttons to view them. */
export function Tensors(props: {
  node: NodeRecord | undefined
  records: TensorRecord[] | undefined
  /** The records are those of the step shown; otherwise their numbers are not. */
  isRead: boolean
  chosen: TensorRecord | null
  onChoose: (record: TensorRecord) => void
}) {
  const { t } = useTranslation(inspectorTexts)
  const { node, records } = props
  if (!node) return <Skeleton h={120} m={8} />
  return (
    <>
      {(['input', 'output'] as const).map((io) => {
        const slots = io === 'input' ? node.inputs : node.outputs
        const matching = (records ?? []).filter((record) => record.io === io)
        // A dump may have a slot that the graph does not have.
        const numbers = [...new Set([...slots, ...matching].map(({ slot }) => slot))]
        if (numbers.length === 0) return null
        return (
          <section key={io}>
            <h3 className={styles.subtitle}>
              {t(io === 'input' ? 'inputs' : 'outputs')}{' '}
              <span className={styles.quiet}>{count(numbers.length)}</span>
            </h3>
            <Rows
              {...props}
              rows={numbers.map((number) => ({
                slot: slots.find((slot) => slot.slot === number) ?? { ...EMPTY, slot: number, io },
                record: matching.find((record) => record.slot === number),
                isRead: props.isRead,
              }))}
              node={node}
            />
          </section>
        )
      })}
      {node.inputs.length + node.outputs.length + (records?.length ?? 1) === 0 && (
        <p className={styles.note}>{t('noTensors')}</p>
      )}
    </>
  )
}

const EMPTY = { control: false, dtype: '', peer: '', peer_slot: 0, shape: null }

interface RowContent {
  slot: Slot
  record: TensorRecord | undefined
  isRead: boolean
}

function Rows(props: {
  rows: RowContent[]
  node: NodeRecord
  chosen: TensorRecord | null
  onChoose: (record: TensorRecord) => void
}) {
  const { t } = useTranslation(inspectorTexts)
  const [isAll, setAll] = useState(false)
  const shown = isAll ? props.rows : props.rows.slice(0, FEW)
  return (
    <ul className={styles.tensors}>
      {shown.map((row) => (
        <Row
          key={row.slot.slot}
          {...row}
          node={props.node}
          isChosen={row.record !== undefined && row.record.address === props.chosen?.address}
          onChoose={props.onChoose}
        />
      ))}
      {shown.length < props.rows.length && (
        <Button size="compact-xs" variant="subtle" onClick={() => setAll(true)}>
          {t('more', { count: props.rows.length })}
        </Button>
      )}
    </ul>
  )
}

function Row(
  props: RowContent & { node: NodeRecord; isChosen: boolean; onChoose: (record: TensorRecord) => void },
) {
  const { t } = useTranslation(inspectorTexts)
  const { slot, record, node } = props
  const selectNode = useView((view) => view.selectNode)
  const name = t(slot.io, { slot: slot.slot })
  const isHit = record !== undefined && record.abbreviations.length > 0
  const isUnseen = slot.peer === UNSEEN
  return (
    <li
      className={styles.tensor}
      data-chosen={props.isChosen || undefined}
      data-hit={isHit || undefined}
      data-testid="tensor-row"
      data-slot={`${slot.io}.${slot.slot}`}
      onClick={() => record && props.onChoose(record)}
    >
      <div className={styles.line}>
        <button
          type="button"
          className={styles.slot}
          aria-pressed={props.isChosen}
          aria-label={t('choose', { slot: name })}
          disabled={!record}
        >
          {name}
        </button>
        <span className={`mono ${styles.shape ?? ''}`}>
          {record?.dtype ?? slot.dtype} {shapeText(record?.shape ?? slot.shape)}
        </span>
        {isHit && (
          <Tooltip label={t('hitOn', { abbreviations: record.abbreviations.join(', ') })}>
            <Badge size="xs" radius="sm" color="red" variant="filled" tt="none">
              {record.abbreviations.join(' ')}
            </Badge>
          </Tooltip>
        )}
        {record && <Buttons record={record} name={name} />}
      </div>
      {isUnseen && <div className={styles.quiet}>{t('unseen')}</div>}
      {slot.peer && !isUnseen && (
        <div className={styles.line}>
          <IconArrowLeft size={12} aria-label={t('from')} className={styles.quiet} />
          <button
            type="button"
            className={styles.peer}
            title={slot.peer}
            onClick={(event) => {
              event.stopPropagation()
              selectNode({ rank: node.rank, graph: node.graph, name: slot.peer })
            }}
          >
            {slot.peer.split('/').at(-1)}
            {slot.peer_slot > 0 ? `:${slot.peer_slot}` : ''}
          </button>
          {slot.control && <span className={styles.quiet}>{t('control')}</span>}
        </div>
      )}
      {!slot.control &&
        !isUnseen &&
        (props.isRead ? <Numbers record={record} /> : <Skeleton h={14} my={2} />)}
    </li>
  )
}

/** The known numbers of a tensor: the value of a scalar or statistics, with counts of NaN and infinities. */
function Numbers({ record }: { record: TensorRecord | undefined }) {
  const { t } = useTranslation(inspectorTexts)
  const { t: tensor } = useTranslation(tensorTexts)
  const statistics = record?.statistics
  if (!record || !statistics) {
    return (
      <div className={styles.numbers}>
        <Tooltip
          label={record && tensor(`statusLong.${record.status}`)}
          disabled={!record}
          multiline
          maw={280}
        >
          <span className={styles.quiet}>
            {record ? tensor(`status.${record.status}`) : t('unknownNumbers')}
          </span>
        </Tooltip>
      </div>
    )
  }
  const alarms = (
    [
      ['✕ NaN', 'nan_count'],
      ['▲ +Inf', 'pos_inf_count'],
      ['▼ -Inf', 'neg_inf_count'],
    ] as const
  ).filter(([, name]) => statistics[name] > 0)
  return (
    <div className={styles.numbers}>
      {record.scalar !== '' ? (
        <span className="mono">= {record.scalar}</span>
      ) : (
        (['min', 'max', 'mean'] as const).map((name) => (
          <span key={name} title={String(statistics[name] ?? '')}>
            <span className={styles.quiet}>{t(name)}</span>{' '}
            <span className="mono">{short(statistics[name])}</span>
          </span>
        ))
      )}
      {alarms.map(([mark, name]) => (
        <b key={name} className={styles.alarm}>
          {mark} {count(statistics[name])}
        </b>
      ))}
    </div>
  )
}

function Buttons({ record, name }: { record: TensorRecord; name: string }) {
  const { t } = useTranslation(inspectorTexts)
  const { t: tensor } = useTranslation(tensorTexts)
  const run = useView((view) => view.run)
  const openTensor = useView((view) => view.openTensor)
  const change = useTensorViews((views) => views.change)
  const isThere = record.status === 'available' || record.status === 'at_source'
  const address = withoutStep(record.address)
  const size = record.size_bytes ? bytes(record.size_bytes) : ''
  const download = !isThere
    ? tensor('noDownload')
    : size
      ? tensor('download', { size })
      : tensor('downloadPlain')
  const canCompare = isThere && record.has_previous
  return (
    <span className={styles.buttons} onClick={(event) => event.stopPropagation()}>
      <Tooltip label={t('viewLong', { slot: name })}>
        <ActionIcon
          size="sm"
          aria-label={t('viewLong', { slot: name })}
          data-testid="view"
          onClick={() => {
            change(address, { which: 'current' })
            openTensor(address)
          }}
        >
          <IconEye size={15} />
        </ActionIcon>
      </Tooltip>
      <Tooltip label={canCompare ? t('compare') : t('noCompare')}>
        <ActionIcon
          size="sm"
          aria-label={canCompare ? t('compare') : t('noCompare')}
          aria-disabled={!canCompare}
          className={canCompare ? '' : styles.off}
          data-testid="compare"
          onClick={() => {
            if (!canCompare) return
            change(address, { which: 'difference' })
            openTensor(address)
          }}
        >
          <IconArrowsDiff size={15} />
        </ActionIcon>
      </Tooltip>
      <Tooltip label={download}>
        {isThere ? (
          <ActionIcon
            size="sm"
            component="a"
            href={apiUrl(path(run, '/tensor/file'), { address: record.address })}
            download
            aria-label={download}
            data-testid="download"
          >
            <IconDownload size={15} />
          </ActionIcon>
        ) : (
          <ActionIcon
            size="sm"
            aria-label={download}
            aria-disabled
            className={styles.off}
            data-testid="download"
          >
            <IconDownload size={15} />
          </ActionIcon>
        )}
      </Tooltip>
    </span>
  )
}
