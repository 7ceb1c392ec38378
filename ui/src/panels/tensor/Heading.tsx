import { ActionIcon, Badge, Button, Tooltip } from '@mantine/core'
import {
  IconBinaryTree2,
  IconChartBar,
  IconCircleCheck,
  IconCircleDashed,
  IconCpu,
  IconDownload,
} from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { apiUrl } from '~/api/client'
import { path } from '~/api/queries'
import type { TensorRecord, Which } from '~/api/types'
import { CopyButton } from '~/parts/CopyButton'
import { bytes, count, shapeText } from '~/parts/numbers'
import { useView } from '~/state/store'
import styles from './tensor.module.css'
import { tensorTexts } from './texts'

const ICONS = {
  available: IconCircleCheck,
  at_source: IconCpu,
  statistics_only: IconChartBar,
  not_kept: IconCircleDashed,
}

/** The tensor's name, step, type and size, and whether its value is available. */
export function Heading({ record, which }: { record: TensorRecord; which: Which }) {
  const { t } = useTranslation(tensorTexts)
  const { selectNode } = useView()
  const name = record.address.replace(/@-?\d+$/, '')
  const cut = Math.max(name.lastIndexOf('/'), -1) + 1
  const elements = record.statistics?.count ?? record.shape?.reduce((product, size) => product * size, 1)
  const Icon = ICONS[record.status]
  return (
    <div className={styles.heading}>
      <div className={styles.title}>
        <span className={styles.scope} title={record.address}>
          <bdi>{name.slice(0, cut)}</bdi>
        </span>
        <h2 className={styles.name}>{name.slice(cut)}</h2>
        <CopyButton text={record.address} label={t('copyAddress')} />
        <Tooltip label={t('showNode')}>
          <ActionIcon
            size="sm"
            aria-label={t('showNode')}
            onClick={() => selectNode({ rank: record.rank, graph: record.graph, name: record.node })}
          >
            <IconBinaryTree2 size={14} />
          </ActionIcon>
        </Tooltip>
        <span className={styles.atEnd}>
          <Download record={record} />
        </span>
      </div>
      <div className={styles.facts}>
        <Tooltip label={t('initial')} disabled={record.step > 0}>
          <Badge size="sm" radius="sm" variant="light" tt="none" data-testid="tensor-step">
            {t('step', { step: record.step })}
          </Badge>
        </Tooltip>
        {which !== 'current' && (
          <Badge size="sm" radius="sm" variant="light" color="orange" tt="none" data-testid="tensor-shown">
            {t(`shown.${which}`)}
          </Badge>
        )}
        <span className="mono">
          {record.dtype} {shapeText(record.shape)}
        </span>
        <span className={styles.quiet}>
          {[
            elements === undefined || elements < 0
              ? ''
              : t('elements', { count: elements, text: count(elements) }),
            record.size_bytes ? bytes(record.size_bytes) : '',
          ]
            .filter(Boolean)
            .join(' · ')}
        </span>
        <Tooltip label={t(`statusLong.${record.status}`)} multiline maw={300}>
          <span className={styles.status} data-status={record.status} data-testid="tensor-status">
            <Icon size={13} aria-hidden />
            {t(`status.${record.status}`)}
          </span>
        </Tooltip>
      </div>
    </div>
  )
}

/** A link that downloads the whole tensor; the browser shows the progress. */
export function Download({ record }: { record: TensorRecord }) {
  const { t } = useTranslation(tensorTexts)
  const run = useView((view) => view.run)
  const isThere = record.status === 'available' || record.status === 'at_source'
  const label = record.size_bytes ? t('download', { size: bytes(record.size_bytes) }) : t('downloadPlain')
  return (
    <Tooltip label={isThere ? label : t('noDownload')}>
      {isThere ? (
        <Button
          component="a"
          size="compact-xs"
          variant="default"
          leftSection={<IconDownload size={13} />}
          href={apiUrl(path(run, '/tensor/file'), { address: record.address })}
          download
          aria-label={label}
          data-testid="download"
        >
          .npy
        </Button>
      ) : (
        <Button
          size="compact-xs"
          variant="default"
          leftSection={<IconDownload size={13} />}
          data-disabled
          aria-disabled
          aria-label={t('noDownload')}
          data-testid="download"
        >
          .npy
        </Button>
      )}
    </Tooltip>
  )
}
